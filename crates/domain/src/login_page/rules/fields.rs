//! Which inputs are asked for, what each is for, and what sends them.

use super::super::{Field, FieldKind, Handle, InputKind, MfaKind};
use super::page::{Entry, Page, PageText, Press};
use super::words::{self, fold, says};

/// How many boxes one code may have.
const BOXES: std::ops::RangeInclusive<usize> = 4..=10;
/// Other values that a login may ask for beside the usual ones.
const MAX_OTHERS: usize = 5;

/// What an input is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Identifier,
    Password,
    NewPassword,
    Code,
    /// One box of a code.
    Digit,
    Tick,
    Search,
    Newsletter,
    Other,
    Ignored,
}

/// Inputs that are sent together.
pub(super) struct Group<'a> {
    entries: Vec<(Use, &'a Entry<'a>)>,
    pub(super) presses: Vec<&'a Press<'a>>,
    score: i32,
}

/// What a group asks for.
pub(super) struct Form {
    pub(super) fields: Vec<Field>,
    pub(super) ticks: Vec<Handle>,
    pub(super) submit: Option<Handle>,
    /// Its button is there and switched off, though everything is filled in.
    pub(super) waits: bool,
    /// Something lies over what is to be filled in.
    pub(super) covered: bool,
}

/// The group in which one logs in, if there is one.
pub(super) fn login_form(page: &Page<'_>) -> Option<Form> {
    let groups = groups(page);
    let best = groups.iter().filter(|group| group.score >= 3).max_by_key(|group| group.score)?;
    let form = form(page, best);
    (!form.fields.is_empty()).then_some(form)
}

/// Whether the page asks for a password that is new.
pub(super) fn asks_new_password(page: &Page<'_>) -> bool {
    page.entries.iter().any(|entry| use_of(page, entry) == Use::NewPassword)
}

fn groups<'a>(page: &'a Page<'a>) -> Vec<Group<'a>> {
    let mut keys: Vec<(usize, Option<usize>, Option<usize>)> = Vec::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    for entry in &page.entries {
        let input = entry.input;
        // What stands in no form belongs together if it lies in the same layer.
        let key = (input.frame, input.form, if input.form.is_some() { None } else { input.layer });
        let at = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            let belongs = |press: &&Press<'a>| {
                let button = press.button;
                button.frame == key.0 && button.form == key.1 && (key.1.is_some() || button.layer == key.2)
            };
            groups.push(Group {
                entries: Vec::new(),
                presses: page.presses.iter().filter(belongs).collect(),
                score: 0,
            });
            keys.len() - 1
        });
        if let Some(group) = groups.get_mut(at) {
            group.entries.push((use_of(page, entry), entry));
        }
    }
    for group in &mut groups {
        digits(group);
        group.score = score(page, group);
    }
    groups
}

fn use_of(page: &Page<'_>, entry: &Entry<'_>) -> Use {
    let input = entry.input;
    let auto = |token: &str| input.autocomplete.split_whitespace().any(|one| one == token);
    let (label, all) = (entry.label.as_str(), entry.all.as_str());
    match input.kind.as_str() {
        "checkbox" => return Use::Tick,
        "radio" | "date" | "datetime-local" | "month" | "time" | "week" => return Use::Ignored,
        "search" => return Use::Search,
        _ => {}
    }
    let code = says(all, words::CODE) && !says(all, words::OTHER_CODE);
    if input.kind == "password" {
        if auto("new-password")
            || says(label, words::NEW_PASSWORD)
            || says(all, &["new password", "confirm password", "password confirm*", "password2"])
        {
            return Use::NewPassword;
        }
        // "Name and PIN" is a login; a PIN after the password is another step.
        let pin = says(all, words::PIN) && !page.known.progress.password;
        let password = auto("current-password") || says(all, words::PASSWORD) || pin;
        let coded = auto("one-time-code") || (code && !password);
        return if coded { Use::Code } else { Use::Password };
    }
    if auto("one-time-code") {
        return Use::Code;
    }
    if input.kind == "select" {
        return if says(all, words::TENANT) { Use::Other } else { Use::Ignored };
    }
    if says(all, words::SEARCH) && !says(all, words::EMAIL) && !says(all, words::USERNAME) {
        return Use::Search;
    }
    if auto("username") {
        return Use::Identifier;
    }
    if says(all, words::NEWSLETTER) {
        return Use::Newsletter;
    }
    if input.kind == "email" {
        return Use::Identifier;
    }
    // A field for a password whose letters are shown.
    if auto("current-password") || (says(label, words::PASSWORD) && !says(label, words::FORGOT) && !code) {
        return Use::Password;
    }
    let identifies = says(all, words::EMAIL) || says(all, words::USERNAME) || says(all, words::PHONE);
    if code && (says(label, words::CODE) || !says(label, words::USERNAME)) {
        return Use::Code;
    }
    if auto("email") || auto("tel") || (identifies && !tenant(entry)) {
        return Use::Identifier;
    }
    if tenant(entry) || auto("organization") {
        return Use::Other;
    }
    if input.kind == "tel" || input.kind == "number" || input.mode == "numeric" {
        let short = input.max_length.is_some_and(|most| most <= 10);
        return if (short || page.says(words::CODE)) && page.known.progress.any() {
            Use::Code
        } else {
            Use::Identifier
        };
    }
    if page.known.progress.any() && page.says(words::CODE) && input.max_length.is_some_and(|most| most <= 10) {
        return Use::Code;
    }
    Use::Other
}

fn tenant(entry: &Entry<'_>) -> bool {
    let clear = |text: &str| {
        says(text, words::TENANT)
            && !says(text, words::EMAIL)
            && !says(text, &["user*", "username", "benutzer*", "identifiant", "usuario", "login"])
    };
    clear(&entry.label) || (entry.label.trim().is_empty() && clear(&entry.all))
}

/// Several boxes of one character side by side are one code.
fn digits(group: &mut Group<'_>) {
    let one = |used: &Use, entry: &Entry<'_>| {
        let numbered = says(&entry.all, &["digit", "ziffer", "chiffre", "digito", "character", "zeichen"]);
        let small =
            entry.input.max_length == Some(1) || (numbered && entry.input.max_length.is_none_or(|most| most <= 10));
        small && !matches!(used, Use::Tick | Use::Ignored)
    };
    let boxes = group.entries.iter().filter(|(used, entry)| one(used, entry)).count();
    if !BOXES.contains(&boxes) {
        return;
    }
    for (used, entry) in &mut group.entries {
        if one(used, entry) {
            *used = Use::Digit;
        }
    }
}

fn score(page: &Page<'_>, group: &Group<'_>) -> i32 {
    let count =
        |wanted: Use| i32::try_from(group.entries.iter().filter(|(used, _)| *used == wanted).count()).unwrap_or(0);
    let (identifiers, passwords, codes) = (count(Use::Identifier), count(Use::Password), count(Use::Code));
    let digits = i32::from(count(Use::Digit) > 0);
    let label = |press: &&&Press<'_>, phrases: &[&str]| says(&press.label, phrases);
    let sends = |phrases: &[&str]| group.presses.iter().filter(|press| label(press, phrases)).count() > 0;
    let bare = |entry: &&(Use, &Entry<'_>)| says(&entry.1.all, words::REGISTER);
    let mut score = 0;
    score += 6 * passwords.min(1) + 5 * (codes + digits).min(1);
    if passwords > 1 {
        score -= 4;
    }
    if identifiers > 0 {
        score += 2;
        score += i32::from(sends(words::LOGIN)) * 2
            + i32::from(sends(words::NEXT))
            + i32::from(page.heads(words::LOGIN)) * 2;
        score += i32::from(says(&page.path(), words::LOGIN)) * 2;
        let named = |entry: &&(Use, &Entry<'_>)| {
            entry.0 == Use::Identifier
                && entry.1.input.autocomplete.split_whitespace().any(|one| one == "username" || one == "webauthn")
        };
        score += i32::from(group.entries.iter().any(|entry| named(&entry))) * 2;
    }
    // Before anything else, a login may ask where one belongs.
    if identifiers + passwords + codes + digits == 0
        && count(Use::Other) == 1
        && group.entries.iter().any(|(_, entry)| tenant(entry))
    {
        score += 2 + i32::from(page.heads(words::LOGIN) || sends(words::LOGIN)) * 2 + i32::from(sends(words::NEXT));
    }
    score -= 8 * count(Use::NewPassword).min(1) + 3 * count(Use::Newsletter).min(1);
    if group.entries.iter().filter(bare).count() > 0 || (sends(words::REGISTER) && !sends(words::LOGIN)) {
        score -= 6;
    }
    if sends(words::NEWSLETTER) || (count(Use::Search) > 0 && identifiers + passwords + codes == 0) {
        score -= 6;
    }
    let covered = group.entries.iter().all(|(_, entry)| entry.input.covered);
    score -= 2 * i32::from(covered);
    score + i32::from(group.entries.iter().any(|(_, entry)| page.is_dialog(entry.input.layer)))
}

fn form(page: &Page<'_>, group: &Group<'_>) -> Form {
    let mut fields = Vec::new();
    let mut others = 0;
    let boxes: Vec<&Entry<'_>> =
        group.entries.iter().filter(|(used, _)| *used == Use::Digit).map(|(_, entry)| *entry).collect();
    let mut seen = Vec::new();
    for (used, entry) in &group.entries {
        let kind = match used {
            Use::Identifier => FieldKind::Identifier,
            Use::Password => FieldKind::Password,
            Use::Code | Use::Digit => code_kind(page, entry),
            Use::Other
                if others < MAX_OTHERS && (entry.input.required || tenant(entry) || !entry.label.trim().is_empty()) =>
            {
                others += 1;
                FieldKind::Text
            }
            _ => continue,
        };
        let all = if *used == Use::Digit { boxes.as_slice() } else { std::slice::from_ref(entry) };
        // A list that has a choice already need not be asked about.
        if entry.input.kind == "select" && entry.input.filled && !entry.input.required {
            continue;
        }
        let single =
            matches!(kind, FieldKind::Password | FieldKind::Code | FieldKind::TotpCode | FieldKind::Identifier);
        let known = kind == FieldKind::TotpCode || kind == FieldKind::Code;
        if single
            && (seen.contains(&kind)
                || (known && seen.iter().any(|one| matches!(one, FieldKind::Code | FieldKind::TotpCode))))
        {
            continue;
        }
        seen.push(kind);
        fields.push(field(page, kind, all, fields.len()));
    }
    let ticks = ticks(group);
    let last = group.entries.iter().map(|(_, entry)| entry.input.place).max().unwrap_or(0);
    let submit = submit(group, last);
    let off = page.reading.buttons.iter().any(|button| {
        let first = group.entries.first().map(|(_, entry)| entry.input);
        // "Signing in…"
        let busy = || says(&fold(&button.label), words::WAIT) && !says(&fold(&button.label), words::LOGIN);
        (button.disabled || busy())
            && first.is_some_and(|input| {
                input.frame == button.frame && input.form == button.form && input.layer == button.layer
            })
    });
    let filled =
        group.entries.iter().all(|(used, entry)| matches!(used, Use::Tick | Use::Ignored) || entry.input.filled);
    let covered =
        group.entries.iter().any(|(used, entry)| !matches!(used, Use::Tick | Use::Ignored) && entry.input.covered);
    Form { fields, ticks, submit, waits: off && filled && page.known.progress.any(), covered }
}

fn code_kind(page: &Page<'_>, entry: &Entry<'_>) -> FieldKind {
    match code_way(page, entry) {
        Some(MfaKind::Totp) => FieldKind::TotpCode,
        _ => FieldKind::Code,
    }
}

/// How a code comes, by the words around it.
fn code_way(page: &Page<'_>, entry: &Entry<'_>) -> Option<MfaKind> {
    let of = |text: &str| {
        let told = [
            (MfaKind::Totp, words::TOTP),
            (MfaKind::Call, words::CALL),
            (MfaKind::Sms, words::SMS),
            (MfaKind::Email, words::EMAIL),
            (MfaKind::Sms, words::PHONE),
        ];
        told.into_iter().find(|(_, phrases)| says(text, phrases)).map(|(way, _)| way)
    };
    let hint = fold(&entry.input.hint);
    if let Some(way) = of(&entry.all).or_else(|| of(&hint)) {
        return Some(way);
    }
    // The nearest text before the field that says how.
    let before = page.texts.iter().filter(|said| said.text.place <= entry.input.place);
    let mut nearest: Vec<_> = before.filter(|said| said.text.frame == entry.input.frame).collect();
    nearest.sort_by_key(|said| std::cmp::Reverse(said.text.place));
    let told = |said: &PageText<'_>| {
        let mailed = said.text.text.contains('@')
            && says(&said.words, &["code", "sent", "gesendet", "geschickt", "envoye", "enviado"]);
        of(&said.words).or_else(|| mailed.then_some(MfaKind::Email))
    };
    let codes = |text: &str| {
        says(text, words::CODE)
            || says(text, &["sent", "gesendet", "geschickt", "envoye", "enviado", "enviamos", "generated", "app"])
    };
    nearest
        .iter()
        .filter(|said| codes(&said.words))
        .find_map(|said| told(said))
        .or_else(|| nearest.iter().take(4).find_map(|said| told(said)))
        .or_else(|| of(&fold(&page.reading.title)))
}

fn field(page: &Page<'_>, kind: FieldKind, entries: &[&Entry<'_>], at: usize) -> Field {
    let Some(first) = entries.first() else { return empty(kind) };
    let input = first.input;
    let mfa = matches!(kind, FieldKind::Code | FieldKind::TotpCode).then(|| code_way(page, first)).flatten();
    let reference = reference(kind, first);
    let own = if entries.len() > 1 { String::new() } else { input.label.clone() };
    let label = [own.as_str(), input.placeholder.as_str()]
        .into_iter()
        .find(|text| !text.trim().is_empty() && entries.len() == 1);
    let hint = if input.hint.is_empty() { sent_where(page, kind, first) } else { Some(input.hint.clone()) };
    Field {
        key: match kind {
            FieldKind::Identifier => "identifier".to_owned(),
            FieldKind::Password => "password".to_owned(),
            FieldKind::Code | FieldKind::TotpCode => "code".to_owned(),
            FieldKind::TotpSecret => "totp_secret".to_owned(),
            FieldKind::Text => format!("text-{}", if reference == "text" { at.to_string() } else { reference.clone() }),
        },
        label: label
            .map_or_else(|| plain_label(kind).to_owned(), |label| label.trim_end_matches(['*', ':', ' ']).to_owned()),
        input: look(kind, first),
        reference,
        kind,
        placeholder: (!input.placeholder.is_empty()).then(|| input.placeholder.clone()),
        hint,
        selector: input.selector.clone(),
        required: input.required || kind != FieldKind::Text,
        mfa,
        boxes: entries.iter().map(|entry| entry.input.handle.clone()).collect(),
        options: input.options.clone(),
        origin: page.origin(input.frame),
    }
}

fn empty(kind: FieldKind) -> Field {
    Field {
        key: String::new(),
        reference: String::new(),
        kind,
        input: InputKind::Text,
        label: String::new(),
        placeholder: None,
        hint: None,
        selector: String::new(),
        required: false,
        mfa: None,
        boxes: Vec::new(),
        options: Vec::new(),
        origin: String::new(),
    }
}

/// What the page says of where a code went.
fn sent_where(page: &Page<'_>, kind: FieldKind, entry: &Entry<'_>) -> Option<String> {
    let sent = [
        "sent",
        "texted",
        "emailed",
        "gesendet",
        "geschickt",
        "envoye",
        "enviado",
        "enviamos",
        "ending",
        "generated",
        "app",
        "authenticator",
    ];
    let code = matches!(kind, FieldKind::Code | FieldKind::TotpCode);
    let tells = page.texts.iter().filter(|said| said.text.frame == entry.input.frame && says(&said.words, &sent));
    tells.map(|said| said.text.text.clone()).find(|text| code && text.chars().count() <= 200)
}

fn reference(kind: FieldKind, entry: &Entry<'_>) -> String {
    let input = entry.input;
    match kind {
        FieldKind::Identifier => {
            let user = says(&entry.label, words::USERNAME);
            let (mail, phone) = (says(&entry.all, words::EMAIL), says(&entry.all, words::PHONE));
            let only_mail = input.kind == "email" || (mail && !user && !phone);
            let only_phone = input.kind == "tel" || (phone && !user && !mail);
            (if only_mail {
                "email"
            } else if only_phone {
                "phone"
            } else {
                "username"
            })
            .to_owned()
        }
        FieldKind::Password => "password".to_owned(),
        FieldKind::Code | FieldKind::TotpCode => "code".to_owned(),
        FieldKind::TotpSecret => "totp_secret".to_owned(),
        FieldKind::Text => {
            let named = [&input.name, &input.label, &input.placeholder, &input.id];
            let name =
                named.into_iter().map(|name| fold(name)).find(|name| !name.trim().is_empty()).unwrap_or_default();
            let name: String = name.trim().replace(' ', "_").chars().take(40).collect();
            if name.is_empty() { "text".to_owned() } else { name }
        }
    }
}

fn look(kind: FieldKind, entry: &Entry<'_>) -> InputKind {
    match (kind, entry.input.kind.as_str()) {
        (FieldKind::Password, _) => InputKind::Password,
        (FieldKind::TotpCode, _) => InputKind::Totp,
        (FieldKind::Code, _) => InputKind::Code,
        (_, "email") => InputKind::Email,
        (_, "tel") => InputKind::Tel,
        (_, "number") => InputKind::Number,
        (_, "url") => InputKind::Url,
        _ => InputKind::Text,
    }
}

const fn plain_label(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Identifier => "User name",
        FieldKind::Password => "Password",
        FieldKind::Code => "Code",
        FieldKind::TotpCode => "Code of your authenticator",
        FieldKind::TotpSecret => "Secret of your authenticator",
        FieldKind::Text => "Value",
    }
}

/// Boxes that are to be ticked: to be remembered, and what must be agreed to.
fn ticks(group: &Group<'_>) -> Vec<Handle> {
    let wanted = |entry: &&Entry<'_>| {
        let input = entry.input;
        let terms = says(&entry.all, words::AGREE_TERMS) && !says(&entry.all, words::NEWSLETTER);
        !input.filled && (says(&entry.all, words::REMEMBER) || (terms && input.required))
    };
    let ticks = group.entries.iter().filter(|(used, _)| *used == Use::Tick).map(|(_, entry)| *entry);
    ticks.filter(wanted).take(4).map(|entry| entry.input.handle.clone()).collect()
}

/// The button that sends, by its words, then by its kind, then by where it stands.
fn submit(group: &Group<'_>, last: usize) -> Option<Handle> {
    use super::super::ButtonKind;
    let rate = |press: &&Press<'_>| -> Option<(i32, usize)> {
        let button = press.button;
        let (label, words_) = (press.label.as_str(), press.label.split_whitespace().count());
        let another = [
            words::REGISTER,
            words::FORGOT,
            words::RESEND,
            words::BACK,
            words::SHOW,
            words::LEGAL,
            words::NEWSLETTER,
            words::SEARCH,
            words::KEY,
            words::OTHER_WAY,
        ];
        let other = another.iter().any(|phrases| says(label, phrases)) || super::choices::provider_of(press).is_some();
        if other && !says(label, words::LOGIN) || super::choices::provider_of(press).is_some() {
            return None;
        }
        let mut score = match button.kind {
            ButtonKind::Submit => 4,
            ButtonKind::Button => 1,
            ButtonKind::Link | ButtonKind::Item => -1,
            ButtonKind::Radio => return None,
        };
        let short = words_ <= 4;
        score += if short && says(label, words::LOGIN) {
            4
        } else if short && (says(label, words::NEXT) || says(label, words::VERIFY)) {
            3
        } else {
            0
        };
        if button.kind != ButtonKind::Submit && !(short && score >= 3) {
            // Nothing says that it sends: an arrow beside the field may, anything else does not.
            let arrow = words_ == 0
                && says(&press.all, &["submit", "next", "arrow", "go", "login", "signin", "continue", "sign in"]);
            if !arrow && score < 3 {
                return None;
            }
        }
        let distance = if button.place > last { button.place - last } else { 500 + last - button.place };
        Some((score, usize::MAX - distance))
    };
    let best = group
        .presses
        .iter()
        .filter_map(|press| rate(press).map(|rated| (rated, *press)))
        .max_by_key(|(rated, _)| *rated);
    best.map(|(_, press)| press.button.handle.clone())
}
