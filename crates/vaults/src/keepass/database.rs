//! The content of an open database.

use std::collections::BTreeMap;

use ::keepass::Database;
use ::keepass::db::{EntryRef, fields};
use casement_domain::credential::TotpSecret;
use secrecy::ExposeSecret as _;

use super::messages::{Hidden, Login, ReaderResponse, Secrets};
use crate::bounds::{MAX_ITEMS, MAX_URL, MAX_URLS, MAX_VALUE, MAX_VALUES, truncated};

/// The maximum depth of nested groups.
const MAX_DEPTH: usize = 32;
/// The prefix of KeePassXC's names for further URLs of an entry.
const MORE_URLS: &str = "KP2A_URL";
/// KeePass 2's name of the one-time code secret.
const OTHER_OTP: &str = "TimeOtp-Secret-Base32";
/// The prefix of a reference to another entry. A field with a reference counts as empty.
const REFERENCE: &str = "{REF:";

/// Calls `act` with every login that is not in the recycle bin, and with its title, prefixed by the names of its
/// groups.
fn each_login(database: &Database, mut act: impl FnMut(&EntryRef<'_>, String)) {
    let bin = database.recycle_bin().map(|group| group.id());
    let mut open = vec![(database.root().id(), String::new(), 0)];
    while let Some((group, path, depth)) = open.pop() {
        let Some(group) = database.group(group) else { continue };
        for entry in group.entries() {
            if text(&entry, fields::PASSWORD).is_some() || one_time(&entry).is_some() {
                act(&entry, truncated(format!("{path}{}", entry.get_title().unwrap_or_default())));
            }
        }
        for below in group.groups().filter(|below| depth < MAX_DEPTH && Some(below.id()) != bin) {
            let path = format!("{path}{}/", below.name);
            open.push((below.id(), path, depth + 1));
        }
    }
}

/// Returns the logins, sorted by title.
pub(super) fn logins(database: &Database) -> Result<ReaderResponse, ReaderResponse> {
    let mut found = Vec::new();
    let mut all = 0_usize;
    each_login(database, |entry, title| {
        all += 1;
        if all <= MAX_ITEMS {
            let changed_at = entry.times.last_modification.map(|at| at.and_utc().timestamp());
            found.push(Login { id: id(entry), title, urls: urls(entry), changed_at });
        }
    });
    if all > MAX_ITEMS {
        return Err(ReaderResponse::InvalidValue(format!("more than {MAX_ITEMS} items")));
    }
    found.sort_by(|left, right| (&left.title, &left.id).cmp(&(&right.title, &right.id)));
    Ok(ReaderResponse::Logins(found))
}

/// Returns the content of the login with the identifier `wanted`.
pub(super) fn secrets(database: &Database, wanted: &str) -> Result<ReaderResponse, ReaderResponse> {
    let mut found = Err(ReaderResponse::NotFound);
    each_login(database, |entry, _| {
        if id(entry) == wanted {
            found = Ok(ReaderResponse::Secrets(Secrets {
                username: text(entry, fields::USERNAME),
                password: text(entry, fields::PASSWORD),
                one_time: one_time(entry),
                values: values(entry),
            }));
        }
    });
    found
}

fn id(entry: &EntryRef<'_>) -> String {
    entry.id().uuid().to_string()
}

fn text(entry: &EntryRef<'_>, name: &str) -> Option<Hidden> {
    let value = entry.get(name).filter(|value| (1..=MAX_VALUE).contains(&value.len()))?;
    (!value.contains(REFERENCE)).then(|| Hidden(value.to_owned().into()))
}

fn one_time(entry: &EntryRef<'_>) -> Option<Hidden> {
    let secret = text(entry, fields::OTP).or_else(|| text(entry, OTHER_OTP))?;
    TotpSecret::parse(secret.0.expose_secret()).ok().map(|_| secret)
}

/// Returns the URL of the entry, then its further URLs.
fn urls(entry: &EntryRef<'_>) -> Vec<String> {
    let mut further: Vec<&str> =
        entry.fields.keys().map(String::as_str).filter(|name| name.starts_with(MORE_URLS)).collect();
    further.sort_unstable();
    let all = std::iter::once(fields::URL).chain(further).filter_map(|name| entry.get(name));
    all.filter(|url| (1..=MAX_URL).contains(&url.len())).take(MAX_URLS).map(str::to_owned).collect()
}

/// Returns the custom fields of an entry.
fn values(entry: &EntryRef<'_>) -> BTreeMap<String, Hidden> {
    let own = |name: &&String| {
        !fields::KNOWN_FIELDS.contains(&name.as_str())
            && *name != fields::OTP
            && !["KP2A_", "KPEX_", "TimeOtp-", "HmacOtp-", "TOTP "].iter().any(|prefix| name.starts_with(prefix))
    };
    let mut names: Vec<&String> = entry.fields.keys().filter(own).collect();
    names.sort_unstable();
    let value = |name: &String| Some((truncated(name.clone()), text(entry, name)?));
    names.into_iter().filter_map(value).take(MAX_VALUES).collect()
}
