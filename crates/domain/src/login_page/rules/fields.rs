//! The fields of a login form.

use super::super::{Field, FieldKind, Handle, InputKind, MfaKind};
use super::groups::{Group, Purpose, groups, tenant};
use super::page::{Entry, Page, PageText};
use super::submit::{submit, ticks};
use super::words::{self, fold, says};

/// The maximum number of values that a login may request in addition to the usual ones.
const MAX_OTHERS: usize = 5;

/// A login form.
pub(super) struct Form {
    pub(super) fields: Vec<Field>,
    pub(super) ticks: Vec<Handle>,
    pub(super) submit: Option<Handle>,
    /// Whether the form was filled in and is being submitted: its button is disabled or shows a wait.
    pub(super) waits: bool,
    /// Whether another element covers the fields.
    pub(super) covered: bool,
}

/// Returns the login form of the page, if it has one.
pub(super) fn login_form(page: &Page<'_>) -> Option<Form> {
    let groups = groups(page);
    let best = groups.iter().filter(|group| group.score >= 3).max_by_key(|group| group.score)?;
    let form = form(page, best);
    (!form.fields.is_empty()).then_some(form)
}

fn form(page: &Page<'_>, group: &Group<'_>) -> Form {
    let mut fields = Vec::new();
    let mut others = 0;
    let boxes: Vec<&Entry<'_>> =
        group.entries.iter().filter(|(used, _)| *used == Purpose::Digit).map(|(_, entry)| *entry).collect();
    let mut seen = Vec::new();
    for (used, entry) in &group.entries {
        let kind = match used {
            Purpose::Identifier => FieldKind::Identifier,
            Purpose::Password => FieldKind::Password,
            Purpose::Code | Purpose::Digit => code_kind(page, entry),
            Purpose::Other
                if others < MAX_OTHERS && (entry.input.required || tenant(entry) || !entry.label.trim().is_empty()) =>
            {
                others += 1;
                FieldKind::Text
            }
            _ => continue,
        };
        let all = if *used == Purpose::Digit { boxes.as_slice() } else { std::slice::from_ref(entry) };
        // An optional list with a selected option is not requested.
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
        // A label such as "Signing in…".
        let busy = || says(&fold(&button.label), words::WAIT) && !says(&fold(&button.label), words::LOGIN);
        (button.disabled || busy())
            && first.is_some_and(|input| {
                input.frame == button.frame && input.form == button.form && input.layer == button.layer
            })
    });
    let filled = group
        .entries
        .iter()
        .all(|(used, entry)| matches!(used, Purpose::Tick | Purpose::Ignored) || entry.input.filled);
    let covered = group
        .entries
        .iter()
        .any(|(used, entry)| !matches!(used, Purpose::Tick | Purpose::Ignored) && entry.input.covered);
    Form { fields, ticks, submit, waits: off && filled && page.known.progress.any(), covered }
}

fn code_kind(page: &Page<'_>, entry: &Entry<'_>) -> FieldKind {
    match code_way(page, entry) {
        Some(MfaKind::Totp) => FieldKind::TotpCode,
        _ => FieldKind::Code,
    }
}

/// Returns the channel of a code by the words around its field.
fn code_way(page: &Page<'_>, entry: &Entry<'_>) -> Option<MfaKind> {
    let of = |text: &str| {
        let ways = [
            (MfaKind::Totp, words::TOTP),
            (MfaKind::Call, words::CALL),
            (MfaKind::Sms, words::SMS),
            (MfaKind::Email, words::EMAIL),
            (MfaKind::Sms, words::PHONE),
        ];
        ways.into_iter().find(|(_, phrases)| says(text, phrases)).map(|(way, _)| way)
    };
    let hint = fold(&entry.input.hint);
    if let Some(way) = of(&entry.all).or_else(|| of(&hint)) {
        return Some(way);
    }
    // Falls back to the nearest text before the field that names a channel.
    let before = page.texts.iter().filter(|line| line.text.place <= entry.input.place);
    let mut nearest: Vec<_> = before.filter(|line| line.text.frame == entry.input.frame).collect();
    nearest.sort_by_key(|line| std::cmp::Reverse(line.text.place));
    let way_of = |line: &PageText<'_>| {
        let mailed = line.text.text.contains('@')
            && says(&line.words, &["code", "sent", "gesendet", "geschickt", "envoye", "enviado"]);
        of(&line.words).or_else(|| mailed.then_some(MfaKind::Email))
    };
    let codes = |text: &str| {
        says(text, words::CODE)
            || says(text, &["sent", "gesendet", "geschickt", "envoye", "enviado", "enviamos", "generated", "app"])
    };
    nearest
        .iter()
        .filter(|line| codes(&line.words))
        .find_map(|line| way_of(line))
        .or_else(|| nearest.iter().take(4).find_map(|line| way_of(line)))
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
        input: input_kind(kind, first),
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

/// Returns the text of the page that describes where a code was sent.
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
    let hints = page.texts.iter().filter(|line| line.text.frame == entry.input.frame && says(&line.words, &sent));
    hints.map(|line| line.text.text.clone()).find(|text| code && text.chars().count() <= 200)
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

fn input_kind(kind: FieldKind, entry: &Entry<'_>) -> InputKind {
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
