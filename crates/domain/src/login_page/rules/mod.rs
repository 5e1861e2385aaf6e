//! The rules that derive the meaning of a page from its attributes and words.

mod answers;
mod choices;
mod fields;
mod groups;
mod page;
mod steps;
mod submit;
mod words;

use self::page::Page;
use self::words::{fold, says};
use super::{
    AllowedHosts, Choice, ChoiceKind, External, Known, PageQuestion, Reading, Refusal, RefusalKind, Understanding,
};

/// Returns the meaning of a page in a login at a site with these hosts. A pure function.
#[must_use]
pub fn understand(reading: &Reading, known: &Known, hosts: &AllowedHosts) -> Understanding {
    if reading.url.starts_with("about:") || reading.url.is_empty() {
        return Understanding::Busy;
    }
    if let Err(host) = hosts.check(&reading.url) {
        return Understanding::NotAllowed { host };
    }
    let page = Page::of(reading, known, hosts);
    if let Some(step) = steps::cookie_banner(&page) {
        return Understanding::Step(step);
    }
    if let Some(kind) = captcha_alone(&page) {
        return Understanding::Captcha { kind };
    }
    match fields::login_form(&page) {
        Some(form) => with_form(&page, form),
        None => without_form(&page),
    }
}

/// Returns the kind of the captcha that blocks the page, or that is on a page without a form.
fn captcha_alone(page: &Page<'_>) -> Option<String> {
    let open = page.reading.captchas.iter().find(|captcha| !captcha.solved)?;
    let alone = fields::login_form(page).is_none() && page.says(words::CAPTCHA);
    (open.blocking || alone).then(|| open.kind.clone())
}

/// Returns whether the page has a captcha of its own: letters in an image.
fn own_captcha(page: &Page<'_>) -> bool {
    page.entries
        .iter()
        .any(|entry| matches!(entry.input.kind.as_str(), "text" | "tel" | "number") && says(&entry.all, words::CAPTCHA))
}

fn with_form(page: &Page<'_>, form: fields::Form) -> Understanding {
    if form.covered
        && let Some(step) = steps::dialog_over(page)
    {
        return Understanding::Step(step);
    }
    if form.waits {
        return Understanding::Busy;
    }
    let second = form
        .fields
        .iter()
        .any(|field| field.mfa.is_some() || matches!(field.kind, super::FieldKind::Code | super::FieldKind::TotpCode));
    let mut choices = choices::providers(page);
    choices.extend(choices::kinds_of_identifiers(page, form.submit.as_ref()));
    for way in choices::ways(page, second, form.submit.as_ref()) {
        if !choices.iter().any(|choice| choice.handle == way.handle) {
            choices.push(way);
        }
    }
    let open = page.reading.captchas.iter().find(|captcha| !captcha.solved).map(|captcha| captcha.kind.clone());
    let captcha = open.or_else(|| own_captcha(page).then(|| "picture".to_owned()));
    let mut fields = form.fields;
    if captcha.as_deref() == Some("picture") {
        fields.retain(|field| !says(&fold(&format!("{} {}", field.label, field.reference)), words::CAPTCHA));
    }
    // The fields are not requested if the password field is in a frame of a host that is not allowed.
    if let Some(host) = &page.forbidden
        && !fields.iter().any(|field| field.kind == super::FieldKind::Password)
    {
        return Understanding::NotAllowed { host: host.clone() };
    }
    let refusal = answers::refusal(page, true);
    Understanding::Fields(PageQuestion { fields, choices, refusal, ticks: form.ticks, submit: form.submit, captcha })
}

fn without_form(page: &Page<'_>) -> Understanding {
    let (known, reading) = (page.known, page.reading);
    if let Some(host) = &page.forbidden {
        return Understanding::NotAllowed { host: host.clone() };
    }
    if let Some(captcha) = reading.captchas.iter().find(|captcha| !captcha.solved) {
        return Understanding::Captcha { kind: captcha.kind.clone() };
    }
    if own_captcha(page) {
        return Understanding::Captcha { kind: "picture".to_owned() };
    }
    let signs = signs_of_login(page);
    // Only pages after the login offer to log out. The other signs occur on earlier pages too.
    if signs >= 6 && offers_logout(page) {
        return Understanding::LoggedIn { url: reading.url.clone() };
    }
    if let Some(step) = steps::stay(page) {
        return Understanding::Step(step);
    }
    if let Some(choices) = choices_alone(page) {
        return choices;
    }
    if let Some(external) = answers::elsewhere(page) {
        return Understanding::External(External { choices: choices::ways(page, true, None), ..external });
    }
    if let Some(refusal) = refusal_alone(page) {
        return Understanding::Refused(refusal);
    }
    if groups::asks_new_password(page) {
        return steps::decline(page).map_or(Understanding::NotUnderstood, Understanding::Step);
    }
    if known.progress.any()
        && let Some(step) = steps::decline(page)
    {
        return Understanding::Step(step);
    }
    if signs >= 4 {
        return Understanding::LoggedIn { url: reading.url.clone() };
    }
    if answers::waits(page) || !reading.settled {
        return Understanding::Busy;
    }
    let next =
        if known.progress.any() { steps::go_on(page).or_else(|| steps::to_login(page)) } else { steps::to_login(page) };
    next.map_or(Understanding::NotUnderstood, Understanding::Step)
}

/// Returns the question of a page that requests only a choice.
fn choices_alone(page: &Page<'_>) -> Option<Understanding> {
    let known = page.known;
    let question = |choices: Vec<Choice>| {
        Understanding::Choices(PageQuestion {
            choices,
            refusal: answers::refusal(page, true),
            ..PageQuestion::default()
        })
    };
    let accounts = choices::accounts(page);
    if !accounts.is_empty() {
        return Some(question(accounts));
    }
    let second = known.progress.password
        || known.progress.code
        || (page.says(words::SECOND_FACTOR) && !page.says(words::HOW_TO_SIGN_IN));
    let radios = choices::radios(page, second);
    if !radios.is_empty() {
        return Some(question(radios));
    }
    let ways = choices::ways(page, second, None);
    let real = ways
        .iter()
        .filter(|choice| choice.kind != ChoiceKind::MfaMethod || choice.mfa != Some(super::MfaKind::Switch))
        .count();
    let waiting = answers::elsewhere(page).is_some();
    if second && !waiting && page.says(words::SECOND_FACTOR) && real > 0 {
        return Some(question(ways));
    }
    let providers = choices::providers(page);
    if !providers.is_empty() && !waiting && (!known.progress.any() || page.heads(words::LOGIN)) {
        return Some(question(providers.into_iter().chain(ways).collect()));
    }
    let login = page.heads(words::LOGIN) || page.says(words::HOW_TO_SIGN_IN) || says(&page.path(), words::LOGIN);
    (ways.len() >= 2 && login && !waiting && !page.says(words::WELCOME)).then(|| question(ways))
}

/// Returns the error of a page that offers no way to continue.
fn refusal_alone(page: &Page<'_>) -> Option<Refusal> {
    let refusal =
        answers::refusal(page, false).filter(|refusal| page.known.progress.any() || refusal.kind != RefusalKind::Other);
    match page.reading.status {
        Some(429) => Some(Refusal { kind: RefusalKind::RateLimited, ..refusal.unwrap_or_else(|| first_text(page)) }),
        Some(500..=599) => {
            Some(Refusal { kind: RefusalKind::SiteFailed, ..refusal.unwrap_or_else(|| first_text(page)) })
        }
        _ => refusal,
    }
}

/// Returns the first text of the page as an error.
fn first_text(page: &Page<'_>) -> Refusal {
    let first = page.texts.first().map(|line| line.text.text.clone()).unwrap_or_default();
    Refusal { website_error: first.chars().take(300).collect(), kind: RefusalKind::Other }
}

/// Returns whether the page offers to log out.
fn offers_logout(page: &Page<'_>) -> bool {
    page.presses.iter().any(|press| {
        let href = fold(press.button.href.split(['?', '#']).next().unwrap_or_default());
        says(&press.label, words::SIGN_OUT)
            || says(&href, &["logout", "signout", "sign out", "log out", "logoff", "abmelden", "deconnexion"])
    })
}

/// Rates how likely the user is logged in: 6 suffices on a page that offers to log out, 4 after the other rules.
fn signs_of_login(page: &Page<'_>) -> i32 {
    let (progress, reading) = (page.known.progress, page.reading);
    let logout = offers_logout(page);
    let account = page.presses.iter().any(|press| says(&fold(&press.button.marks), words::ACCOUNT_MARKS));
    let login_link = page.login_press().is_some();
    let login_path = says(&page.path(), words::LOGIN)
        || says(&page.path(), &["auth", "authorize", "oauth", "sso", "challenge", "verify", "mfa", "2fa"]);
    let content = reading.texts.len() + reading.buttons.len();
    let mut signs = 0;
    signs += 6 * i32::from(logout) + 2 * i32::from(account) + i32::from(page.says(words::WELCOME));
    if progress.password || progress.code || progress.choice || progress.external {
        signs += 2 + i32::from(!login_path) * 2 + i32::from(page.hosts.own(&page.host()));
    }
    signs -= 4 * i32::from(login_link && !logout) + 2 * i32::from(page.heads(words::LOGIN) && !logout);
    signs -=
        4 * i32::from(page.says(words::UNFINISHED)) + 4 * i32::from(reading.status.is_some_and(|status| status >= 400));
    signs -= 3 * i32::from(!page.hosts.own(&page.host())) + 8 * i32::from(content == 0);
    signs -= 4 * i32::from(!logout && (answers::waits(page) && page.says(words::WAIT)));
    signs -= 4 * i32::from(!logout && answers::refusal(page, false).is_some());
    signs - 3 * i32::from(!logout && answers::elsewhere(page).is_some())
}
