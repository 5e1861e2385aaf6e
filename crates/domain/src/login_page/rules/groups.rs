//! The inputs of a page, grouped by the form or layer that is submitted together, with the purpose of each.

use super::page::{Entry, Page, Press};
use super::words::{self, says};

/// The number of boxes that a code may have.
const BOXES: std::ops::RangeInclusive<usize> = 4..=10;
/// The purpose of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
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

/// Inputs that are submitted together, and the buttons beside them.
pub(super) struct Group<'a> {
    pub(super) entries: Vec<(Purpose, &'a Entry<'a>)>,
    pub(super) presses: Vec<&'a Press<'a>>,
    /// The rating of how likely the group is a login form; 3 and above is one.
    pub(super) score: i32,
}

/// Returns whether the page requests a new password.
pub(super) fn asks_new_password(page: &Page<'_>) -> bool {
    page.entries.iter().any(|entry| purpose(page, entry) == Purpose::NewPassword)
}

/// Groups the inputs of a page.
pub(super) fn groups<'a>(page: &'a Page<'a>) -> Vec<Group<'a>> {
    let mut keys: Vec<(usize, Option<usize>, Option<usize>)> = Vec::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    for entry in &page.entries {
        let input = entry.input;
        // Inputs outside of any form belong together if they are in the same layer.
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
            group.entries.push((purpose(page, entry), entry));
        }
    }
    for group in &mut groups {
        digits(group);
        group.score = score(page, group);
    }
    groups
}

fn purpose(page: &Page<'_>, entry: &Entry<'_>) -> Purpose {
    let input = entry.input;
    let auto = |token: &str| input.autocomplete.split_whitespace().any(|one| one == token);
    let (label, all) = (entry.label.as_str(), entry.all.as_str());
    match input.kind.as_str() {
        "checkbox" => return Purpose::Tick,
        "radio" | "date" | "datetime-local" | "month" | "time" | "week" => return Purpose::Ignored,
        "search" => return Purpose::Search,
        _ => {}
    }
    let code = says(all, words::CODE) && !says(all, words::OTHER_CODE);
    if input.kind == "password" {
        if auto("new-password")
            || says(label, words::NEW_PASSWORD)
            || says(all, &["new password", "confirm password", "password confirm*", "password2"])
        {
            return Purpose::NewPassword;
        }
        // A PIN is the password, unless a password was sent before: then it is a code.
        let pin = says(all, words::PIN) && !page.known.progress.password;
        let password = auto("current-password") || says(all, words::PASSWORD) || pin;
        let coded = auto("one-time-code") || (code && !password);
        return if coded { Purpose::Code } else { Purpose::Password };
    }
    if auto("one-time-code") {
        return Purpose::Code;
    }
    if input.kind == "select" {
        return if says(all, words::TENANT) { Purpose::Other } else { Purpose::Ignored };
    }
    if says(all, words::SEARCH) && !says(all, words::EMAIL) && !says(all, words::USERNAME) {
        return Purpose::Search;
    }
    if auto("username") {
        return Purpose::Identifier;
    }
    if says(all, words::NEWSLETTER) {
        return Purpose::Newsletter;
    }
    if input.kind == "email" {
        return Purpose::Identifier;
    }
    // A password field that shows its characters.
    if auto("current-password") || (says(label, words::PASSWORD) && !says(label, words::FORGOT) && !code) {
        return Purpose::Password;
    }
    let identifies = says(all, words::EMAIL) || says(all, words::USERNAME) || says(all, words::PHONE);
    if code && (says(label, words::CODE) || !says(label, words::USERNAME)) {
        return Purpose::Code;
    }
    if auto("email") || auto("tel") || (identifies && !tenant(entry)) {
        return Purpose::Identifier;
    }
    if tenant(entry) || auto("organization") {
        return Purpose::Other;
    }
    if input.kind == "tel" || input.kind == "number" || input.mode == "numeric" {
        let short = input.max_length.is_some_and(|max| max <= 10);
        return if (short || page.says(words::CODE)) && page.known.progress.any() {
            Purpose::Code
        } else {
            Purpose::Identifier
        };
    }
    if page.known.progress.any() && page.says(words::CODE) && input.max_length.is_some_and(|max| max <= 10) {
        return Purpose::Code;
    }
    Purpose::Other
}

/// Returns whether the input is for a company or a tenant.
pub(super) fn tenant(entry: &Entry<'_>) -> bool {
    let clear = |text: &str| {
        says(text, words::TENANT)
            && !says(text, words::EMAIL)
            && !says(text, &["user*", "username", "benutzer*", "identifiant", "usuario", "login"])
    };
    clear(&entry.label) || (entry.label.trim().is_empty() && clear(&entry.all))
}

/// Marks the boxes for single characters as one code.
fn digits(group: &mut Group<'_>) {
    let one = |used: &Purpose, entry: &Entry<'_>| {
        let numbered = says(&entry.all, &["digit", "ziffer", "chiffre", "digito", "character", "zeichen"]);
        let small =
            entry.input.max_length == Some(1) || (numbered && entry.input.max_length.is_none_or(|max| max <= 10));
        small && !matches!(used, Purpose::Tick | Purpose::Ignored)
    };
    let boxes = group.entries.iter().filter(|(used, entry)| one(used, entry)).count();
    if !BOXES.contains(&boxes) {
        return;
    }
    for (used, entry) in &mut group.entries {
        if one(used, entry) {
            *used = Purpose::Digit;
        }
    }
}

fn score(page: &Page<'_>, group: &Group<'_>) -> i32 {
    let count =
        |wanted: Purpose| i32::try_from(group.entries.iter().filter(|(used, _)| *used == wanted).count()).unwrap_or(0);
    let (identifiers, passwords, codes) = (count(Purpose::Identifier), count(Purpose::Password), count(Purpose::Code));
    let digits = i32::from(count(Purpose::Digit) > 0);
    let label = |press: &&&Press<'_>, phrases: &[&str]| says(&press.label, phrases);
    let sends = |phrases: &[&str]| group.presses.iter().filter(|press| label(press, phrases)).count() > 0;
    let bare = |entry: &&(Purpose, &Entry<'_>)| says(&entry.1.all, words::REGISTER);
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
        let named = |entry: &&(Purpose, &Entry<'_>)| {
            entry.0 == Purpose::Identifier
                && entry.1.input.autocomplete.split_whitespace().any(|one| one == "username" || one == "webauthn")
        };
        score += i32::from(group.entries.iter().any(|entry| named(&entry))) * 2;
    }
    // A login may request the tenant before anything else.
    if identifiers + passwords + codes + digits == 0
        && count(Purpose::Other) == 1
        && group.entries.iter().any(|(_, entry)| tenant(entry))
    {
        score += 2 + i32::from(page.heads(words::LOGIN) || sends(words::LOGIN)) * 2 + i32::from(sends(words::NEXT));
    }
    score -= 8 * count(Purpose::NewPassword).min(1) + 3 * count(Purpose::Newsletter).min(1);
    if group.entries.iter().filter(bare).count() > 0 || (sends(words::REGISTER) && !sends(words::LOGIN)) {
        score -= 6;
    }
    if sends(words::NEWSLETTER) || (count(Purpose::Search) > 0 && identifiers + passwords + codes == 0) {
        score -= 6;
    }
    let covered = group.entries.iter().all(|(_, entry)| entry.input.covered);
    score -= 2 * i32::from(covered);
    score + i32::from(group.entries.iter().any(|(_, entry)| page.is_dialog(entry.input.layer)))
}
