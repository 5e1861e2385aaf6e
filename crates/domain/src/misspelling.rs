//! What counts as a misspelling of a name: of a member of a request that restricts something, or of a Chrome policy.
//!
//! An unknown name is usually ignored, because a client may be newer than the server. One that its author meant as a
//! restriction must not be: the author would read a restriction, and the server would enforce none.

use strsim::osa_distance;

/// The maximum length of a name that is compared, in bytes. A longer one is no misspelling.
const MAX_BYTES: usize = 128;

/// Returns whether `given` is another spelling of `name`, which it is not itself.
///
/// Upper and lower case, `_`, `-`, blanks and other signs do not count, nor does the plural. Of what is left, one letter
/// of a name of five to seven letters may be wrong, missing, added or swapped with its neighbour; two of a longer name;
/// none of a shorter one, because short words are too similar.
#[must_use]
pub fn is_misspelling(given: &str, name: &str) -> bool {
    if given == name || given.len() > MAX_BYTES {
        return false;
    }
    let (given, name) = (singular(letters(given)), singular(letters(name)));
    let allowed = match name.len() {
        0..=4 => 0,
        5..=7 => 1,
        _ => 2,
    };
    given == name || (given.len().abs_diff(name.len()) <= allowed && osa_distance(&given, &name) <= allowed)
}

/// Returns the one of `names` of which `given` is a misspelling; `None` if it is one of `names` itself.
#[must_use]
pub fn misspelt<'n>(given: &str, names: &[&'n str]) -> Option<&'n str> {
    if names.contains(&given) {
        return None;
    }
    names.iter().copied().find(|name| is_misspelling(given, name))
}

/// Returns the ASCII letters and digits in lower case.
fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

fn singular(mut word: String) -> String {
    if let Some(stem) = word.strip_suffix("ies") {
        return format!("{stem}y");
    }
    if word.ends_with('s') {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_signs_plural_and_few_wrong_letters_are_misspellings() {
        for (given, name) in [
            ("Policy", "policy"),
            ("polcy", "policy"),
            ("poilcy", "policy"),
            ("policies", "policy"),
            ("projectId", "project_id"),
            ("project-id", "project_id"),
            ("PROJECT_ID", "project_id"),
            ("project ids", "project_id"),
            ("expiresAt", "expires_at"),
            ("expire_at", "expires_at"),
            ("networks", "network"),
            ("netwrok", "network"),
            ("allow_hosts", "allowed_hosts"),
            ("allowedHost", "allowed_hosts"),
            ("enable", "enabled"),
            ("URLBlacklist", "URLBlocklist"),
            ("urlBlocklist", "URLBlocklist"),
            ("Zip", "zip"),
        ] {
            assert!(is_misspelling(given, name), "{given}: {name}");
        }
    }

    #[test]
    fn the_name_itself_and_other_words_are_no_misspellings() {
        for (given, name) in [
            ("policy", "policy"),
            ("private", "policy"),
            ("proxy", "proxy_id"),
            ("tip", "zip"),
            ("created_at", "expires_at"),
            ("description", "project_id"),
            ("URLAllowlist", "URLBlocklist"),
            ("", "policy"),
        ] {
            assert!(!is_misspelling(given, name), "{given}: {name}");
        }
        assert!(!is_misspelling(&format!("policy{}", "_".repeat(MAX_BYTES)), "policy"));
        assert_eq!(misspelt("proxys", &["network", "proxy"]), Some("proxy"));
        assert_eq!(misspelt("proxies", &["proxies", "proxy"]), None);
    }
}
