//! The choices that a page offers instead of its fields, or before them.

use super::super::{ButtonKind, Choice, ChoiceKind, Handle, MfaKind};
use super::page::{Entry, Page, Press};
use super::words::{self, fold, says};

/// The maximum number of choices of a page.
const MAX_COUNT: usize = 30;

/// Returns the SSO provider of a button, if it is the button of one.
pub(super) fn provider_of(press: &Press<'_>) -> Option<&'static str> {
    let short = press.label.split_whitespace().count() <= 8;
    if !short
        || says(&press.label, words::LEGAL)
        || says(&press.label, words::FORGOT)
        || says(&press.label, words::SIGN_OUT)
        || says(&press.label, words::TOTP)
    {
        return None;
    }
    let named = |text: &str| words::PROVIDERS.iter().find(|(word, _)| says(text, &[word])).map(|(_, name)| *name);
    let href = fold(press.button.href.split(['?', '#']).next().unwrap_or_default());
    let marks = fold(&press.button.marks);
    let signs = [
        "social",
        "sso",
        "oauth",
        "oauth2",
        "openid",
        "oidc",
        "saml",
        "idp",
        "provider",
        "federat*",
        "external login",
        "connect",
        "auth",
        "omniauth",
        "identity",
    ];
    let evidence =
        says(&marks, &signs) || says(&href, &signs) || named(&marks).is_some() && press.button.kind != ButtonKind::Link;
    let with = says(&press.label, words::WITH) && press.label.split_whitespace().count() >= 2;
    match named(&press.label) {
        // The letter "x" is a name only if it is alone or after "with".
        Some("twitter") if !says(&press.label, &["twitter"]) => {
            let x = says(&press.label, &["with x", "mit x", "avec x", "con x"])
                || (words::is(&press.label, &["x"]) && says(&marks, &signs));
            x.then_some("twitter")
        }
        Some(name) if with || evidence => Some(name),
        Some(_) => None,
        // An image without words.
        None if press.label.trim().is_empty() || words::is(&press.label, words::WITH) => {
            named(&marks).filter(|_| evidence)
        }
        None => None,
    }
}

/// Returns the channel of a second factor by the words of its button.
pub(super) fn factor_of(text: &str) -> Option<MfaKind> {
    let kinds = [
        (MfaKind::Switch, words::OTHER_WAY),
        (MfaKind::Totp, words::TOTP),
        (MfaKind::Call, words::CALL),
        (MfaKind::Sms, words::SMS),
        (MfaKind::Push, words::PUSH),
        (MfaKind::Email, words::EMAIL),
        (MfaKind::Sms, words::PHONE),
        (MfaKind::Password, words::PASSWORD),
    ];
    kinds.into_iter().find(|(_, phrases)| says(text, phrases)).map(|(kind, _)| kind)
}

/// Returns whether the button leads away from the login.
fn aside(press: &Press<'_>) -> bool {
    let label = press.label.as_str();
    let others = [
        words::REGISTER,
        words::FORGOT,
        words::LEGAL,
        words::BACK,
        words::SHOW,
        words::RESEND,
        words::NEWSLETTER,
        words::SIGN_OUT,
    ];
    label.trim().is_empty() || others.iter().any(|phrases| says(label, phrases)) && !says(label, words::OTHER_WAY)
}

/// Returns the SSO providers of the page.
pub(super) fn providers(page: &Page<'_>) -> Vec<Choice> {
    let mut found: Vec<Choice> = Vec::new();
    for press in &page.presses {
        let Some(provider) = provider_of(press) else { continue };
        if found.len() < MAX_COUNT && !found.iter().any(|choice| choice.provider.as_deref() == Some(provider)) {
            let label =
                if press.button.label.trim().is_empty() { provider.to_owned() } else { press.button.label.clone() };
            let mut choice = choice(press, ChoiceKind::SsoProvider, format!("sso-{provider}"));
            choice.label = label;
            choice.provider = Some(provider.to_owned());
            found.push(choice);
        }
    }
    found
}

/// Returns the ways to sign in or to prove an identity, with or without a form. `second`: for a second factor.
pub(super) fn ways(page: &Page<'_>, second: bool, submit: Option<&Handle>) -> Vec<Choice> {
    let mut found = Vec::new();
    for press in page.presses.iter().filter(|press| Some(&press.button.handle) != submit) {
        if aside(press) || provider_of(press).is_some() || press.label.split_whitespace().count() > 14 {
            continue;
        }
        let text = format!("{} {}", press.label, fold(&press.button.description));
        let key_or_backup = says(&text, words::KEY) || says(&text, words::BACKUP);
        let kind =
            if second { factor_of(&text).or_else(|| by_target(press, &text)) } else { sign_in_way(press, &text) };
        if kind.is_none() && !key_or_backup {
            continue;
        }
        let kind_of = if second { ChoiceKind::MfaMethod } else { ChoiceKind::SignInMethod };
        let mut choice = choice(press, kind_of, String::new());
        choice.mfa = if second && !key_or_backup { kind } else { None };
        choice.target = target(&[&choice.label, choice.description.as_deref().unwrap_or_default()]);
        if key_or_backup {
            choice.kind = if second { ChoiceKind::MfaMethod } else { ChoiceKind::AuthMethod };
        }
        found.push(choice);
    }
    found.truncate(MAX_COUNT);
    keyed(found)
}

/// Returns the channel of a code by its target, for buttons that name no channel: "get a code at ••• 42".
fn by_target(press: &Press<'_>, text: &str) -> Option<MfaKind> {
    let label = words::without_countdown(&press.button.label);
    let description = words::without_countdown(&press.button.description);
    let target = target(&[&label, &description]).filter(|_| says(text, words::CODE))?;
    Some(if target.contains('@') { MfaKind::Email } else { MfaKind::Sms })
}

/// Returns the way to sign in that a button leads to: "use your password instead", "mail me a link". The name of the
/// way is not enough without a verb.
fn sign_in_way(press: &Press<'_>, text: &str) -> Option<MfaKind> {
    let way = factor_of(text)?;
    let verbs = [
        "use",
        "with",
        "using",
        "sign in",
        "log in",
        "continue",
        "send",
        "get",
        "email me",
        "instead",
        "mit",
        "verwenden",
        "nutzen",
        "anmelden",
        "einloggen",
        "senden",
        "stattdessen",
        "avec",
        "utiliser",
        "envoyer",
        "connecter",
        "con",
        "usar",
        "enviar",
        "iniciar",
        "try",
        "by",
        "via",
        "per",
        "par",
        "por",
        "switch",
        "way",
        "method",
        "options",
        "methode",
        "metodo",
        "forma",
        "me",
    ];
    (way == MfaKind::Switch || says(&press.label, &verbs)).then_some(way)
}

/// Returns the second factors that are offered as radio buttons.
pub(super) fn radios(page: &Page<'_>, second: bool) -> Vec<Choice> {
    let entries: Vec<&Entry<'_>> = page
        .reading
        .inputs
        .iter()
        .filter(|input| input.kind == "radio" && input.visible && !input.disabled)
        .filter_map(|input| page.entries.iter().find(|entry| entry.input.handle == input.handle))
        .collect();
    let fits =
        entries.iter().filter(|entry| factor_of(&entry.label).is_some() || says(&entry.label, words::BACKUP)).count();
    if entries.len() < 2 || fits * 2 < entries.len() {
        return Vec::new();
    }
    let confirm = page.presses.iter().filter(|press| !aside(press) && provider_of(press).is_none()).find(|press| {
        let form = entries.first().map(|entry| (entry.input.frame, entry.input.form));
        form == Some((press.button.frame, press.button.form))
            && (says(&press.label, words::NEXT)
                || says(&press.label, words::VERIFY)
                || press.button.kind == ButtonKind::Submit
                || says(&press.label, &["send*"]))
    });
    let found = entries.into_iter().take(MAX_COUNT).map(|entry| {
        let label = words::without_countdown(&entry.input.label);
        let hint = words::without_countdown(&entry.input.hint);
        Choice {
            key: String::new(),
            target: target(&[&label, &hint]),
            label,
            description: (!hint.is_empty()).then_some(hint),
            kind: if second { ChoiceKind::MfaMethod } else { ChoiceKind::SignInMethod },
            mfa: factor_of(&entry.label).filter(|_| second),
            provider: None,
            origin: String::new(),
            handle: entry.input.handle.clone(),
            confirm: confirm.map(|press| press.button.handle.clone()),
            selector: entry.input.selector.clone(),
            xpath: String::new(),
        }
    });
    keyed(found.collect())
}

/// Returns the accounts to choose from.
pub(super) fn accounts(page: &Page<'_>) -> Vec<Choice> {
    if !page.says(words::CHOOSE_ACCOUNT) {
        return Vec::new();
    }
    let names = |press: &&Press<'_>| {
        let all = format!("{} {}", press.button.label, press.button.description);
        let continues = says(
            &press.label,
            &["continue as", "log in as", "sign in as", "continuer en tant que", "weiter als", "continuar como"],
        );
        !aside(press)
            && (continues
                || all.contains('@')
                || press.button.kind == ButtonKind::Item
                || says(&fold(&press.button.marks), &["account", "user", "identifier", "konto"]))
    };
    let other = |press: &&Press<'_>| {
        says(
            &press.label,
            &["another account", "different account", "other account", "anderes konto", "autre compte", "otra cuenta"],
        )
    };
    let mut found: Vec<Choice> = page
        .presses
        .iter()
        .filter(|press| provider_of(press).is_none() && (names(press) || other(press)))
        .take(MAX_COUNT)
        .map(|press| Choice {
            origin: page.origin(press.button.frame),
            ..choice(press, ChoiceKind::Account, String::new())
        })
        .collect();
    for choice in &mut found {
        choice.target = choice.description.clone().filter(|text| text.contains('@'));
    }
    keyed(found)
}

/// Returns the tabs of a form for kinds of identifiers: by e-mail, by phone.
pub(super) fn kinds_of_identifiers(page: &Page<'_>, submit: Option<&Handle>) -> Vec<Choice> {
    let tab = |press: &&Press<'_>| {
        let label = press.label.as_str();
        let short = press.label.split_whitespace().count() <= 4;
        let names = says(label, words::EMAIL) || says(label, words::PHONE) || says(label, words::USERNAME);
        short
            && names
            && !aside(press)
            && provider_of(press).is_none()
            && !says(label, words::LOGIN)
            && Some(&press.button.handle) != submit
            && press.button.kind != ButtonKind::Link
            && !says(label, words::NEXT)
    };
    let found: Vec<Choice> = page
        .presses
        .iter()
        .filter(tab)
        .map(|press| choice(press, ChoiceKind::IdentifierMethod, String::new()))
        .collect();
    if found.len() < 2 { Vec::new() } else { keyed(found) }
}

/// Returns the e-mail address or phone number in the texts, even if it is masked.
fn target(texts: &[&str]) -> Option<String> {
    let masked = |word: &&str| {
        let hidden = word.chars().filter(|c| matches!(c, '*' | '•' | '●' | '·' | 'x' | 'X' | '…' | '∗')).count();
        let digits = word.chars().filter(char::is_ascii_digit).count();
        word.contains('@')
            || hidden >= 2
            || (digits >= 2 && word.chars().all(|c| c.is_ascii_digit() || "+-()".contains(c)))
    };
    let found: Vec<&str> = texts.iter().flat_map(|text| text.split_whitespace()).filter(masked).collect();
    (!found.is_empty()).then(|| found.join(" ").trim_matches(['.', ',', ':', ')', '(']).to_owned())
}

pub(super) fn choice(press: &Press<'_>, kind: ChoiceKind, key: String) -> Choice {
    let button = press.button;
    let description = words::without_countdown(&button.description);
    Choice {
        key,
        label: words::without_countdown(&button.label),
        description: (!description.is_empty()).then_some(description),
        kind,
        mfa: None,
        target: None,
        provider: None,
        origin: String::new(),
        handle: button.handle.clone(),
        confirm: None,
        selector: button.selector.clone(),
        xpath: button.xpath.clone(),
    }
}

/// Gives each choice a unique key that derives from its label.
fn keyed(mut choices: Vec<Choice>) -> Vec<Choice> {
    let mut taken: Vec<String> = Vec::new();
    for choice in &mut choices {
        let word = match choice.kind {
            ChoiceKind::MfaMethod => "mfa",
            ChoiceKind::SsoProvider => "sso",
            ChoiceKind::SignInMethod => "method",
            ChoiceKind::AuthMethod => "auth",
            ChoiceKind::IdentifierMethod => "identifier",
            ChoiceKind::Account => "account",
            ChoiceKind::Other => "other",
        };
        let slug = fold(&format!("{} {}", choice.label, choice.target.as_deref().unwrap_or_default()));
        let slug: String = slug.trim().replace(' ', "-").chars().take(60).collect();
        let mut key = format!("{word}-{slug}");
        let same = taken.iter().filter(|one| **one == key).count();
        taken.push(key.clone());
        if same > 0 {
            key = format!("{key}-{}", same + 1);
        }
        choice.key = key;
    }
    choices
}
