//! The words that the rules search for in the texts of sites.

mod lists;

pub(super) use lists::*;

/// Returns `text` in lower case, without accents, with one space between words and at each end, so that whole words can
/// be found. `camelCase`, `snake_case` and `kebab-case` count as two words each.
pub(super) fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len() + 2);
    folded.push(' ');
    let mut before = ' ';
    for c in text.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            gap(&mut folded);
        }
        before = c;
        for lower in c.to_lowercase() {
            match plain(lower) {
                Some(written) => folded.push_str(written),
                None if lower.is_alphanumeric() => folded.push(lower),
                // A combining accent of the previous letter.
                None if matches!(lower, '\u{300}'..='\u{36F}') => {}
                None => gap(&mut folded),
            }
        }
    }
    gap(&mut folded);
    folded
}

fn gap(folded: &mut String) {
    if !folded.ends_with(' ') {
        folded.push(' ');
    }
}

fn plain(c: char) -> Option<&'static str> {
    Some(match c {
        'à' | 'á' | 'â' | 'ã' | 'å' | 'ą' => "a",
        'ä' => "a",
        'ç' | 'ć' | 'č' => "c",
        'è' | 'é' | 'ê' | 'ë' | 'ę' => "e",
        'ì' | 'í' | 'î' | 'ï' => "i",
        'ñ' | 'ń' => "n",
        'ò' | 'ó' | 'ô' | 'õ' | 'ö' | 'ø' => "o",
        'ß' => "ss",
        'ù' | 'ú' | 'û' | 'ü' => "u",
        'ý' => "y",
        'š' | 'ś' => "s",
        'ž' | 'ż' | 'ź' => "z",
        'œ' => "oe",
        'æ' => "ae",
        'ł' => "l",
        _ => return None,
    })
}

/// Returns whether a folded text has one of the phrases as whole words. A final `*` matches any rest of a word.
pub(super) fn says(folded: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| match phrase.strip_suffix('*') {
        Some(beginning) => find(folded, beginning, false),
        None => find(folded, phrase, true),
    })
}

fn find(folded: &str, phrase: &str, whole: bool) -> bool {
    folded.match_indices(phrase).any(|(at, _)| {
        let before = folded.as_bytes().get(at.wrapping_sub(1)) == Some(&b' ');
        let after = !whole || folded.as_bytes().get(at + phrase.len()) == Some(&b' ');
        before && after
    })
}

/// Returns whether a folded text is one of the phrases and nothing else.
pub(super) fn is(folded: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| folded.trim() == *phrase)
}

/// Removes countdowns as in `Call me (29 s)` and `Send again in 0:29`, so that labels do not change every second.
pub(super) fn without_countdown(text: &str) -> String {
    let unit = |word: &str| {
        matches!(
            word,
            "s" | "sec"
                | "secs"
                | "second"
                | "seconds"
                | "sek"
                | "sekunde"
                | "sekunden"
                | "seconde"
                | "secondes"
                | "segundo"
                | "segundos"
                | "m"
                | "min"
                | "minute"
                | "minutes"
                | "minuten"
                | "minuto"
                | "minutos"
        )
    };
    let bare = |word: &str| word.trim_matches(['(', ')', '[', ']', ',', '.', ':', '…']).to_lowercase();
    let digits = |text: &str| (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let clock = |word: &str| word.split_once(':').is_some_and(|(minutes, seconds)| digits(minutes) && digits(seconds));
    let timed = |word: &str| {
        let number = word.trim_end_matches(|c: char| c.is_alphabetic());
        clock(word) || (digits(number) && unit(word.get(number.len()..).unwrap_or_default()))
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut remaining: Vec<&str> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let plain = bare(word);
        let next = words.get(at + 1).map(|next| bare(next));
        let alone = word.starts_with('(') && word.ends_with(')') && digits(&plain);
        if digits(&plain) && next.is_some_and(|next| unit(&next)) {
            at += 2;
        } else if timed(&plain) || alone {
            at += 1;
        } else {
            remaining.push(word);
            at += 1;
            continue;
        }
        // "… in 29 s".
        if remaining.len() > 1 && remaining.last().is_some_and(|word| matches!(*word, "in" | "en" | "dans" | "for")) {
            remaining.pop();
        }
    }
    // A text that is only a countdown stays unchanged.
    if remaining.is_empty() { text.to_owned() } else { remaining.join(" ") }
}

/// The SSO providers: the word to search for, and the name.
pub(super) const PROVIDERS: &[(&str, &str)] = &[
    ("google", "google"),
    ("gmail", "google"),
    ("apple", "apple"),
    ("microsoft", "microsoft"),
    ("azure", "microsoft"),
    ("office 365", "microsoft"),
    ("outlook", "microsoft"),
    ("entra", "microsoft"),
    ("facebook", "facebook"),
    ("github", "github"),
    ("git hub", "github"),
    ("gitlab", "gitlab"),
    ("git lab", "gitlab"),
    ("bitbucket", "bitbucket"),
    ("bit bucket", "bitbucket"),
    ("atlassian", "atlassian"),
    ("linkedin", "linkedin"),
    ("linked in", "linkedin"),
    ("twitter", "twitter"),
    ("x", "twitter"),
    ("okta", "okta"),
    ("auth0", "auth0"),
    ("onelogin", "onelogin"),
    ("one login", "onelogin"),
    ("amazon", "amazon"),
    ("slack", "slack"),
    ("salesforce", "salesforce"),
    ("sales force", "salesforce"),
    ("yahoo", "yahoo"),
    ("discord", "discord"),
    ("twitch", "twitch"),
    ("steam", "steam"),
    ("paypal", "paypal"),
    ("pay pal", "paypal"),
    ("spotify", "spotify"),
    ("line", "line"),
    ("kakao", "kakao"),
    ("naver", "naver"),
    ("wechat", "wechat"),
    ("we chat", "wechat"),
    ("vk", "vk"),
    ("saml", "saml"),
    ("sso", "sso"),
    ("single sign on", "sso"),
    ("company account", "sso"),
    ("work account", "sso"),
    ("enterprise", "sso"),
    ("openid", "openid"),
    ("open id", "openid"),
    ("oidc", "openid"),
    ("keycloak", "keycloak"),
    ("key cloak", "keycloak"),
    ("ping identity", "ping"),
    ("unternehmenskonto", "sso"),
    ("firmenkonto", "sso"),
    ("compte professionnel", "sso"),
    ("cuenta de empresa", "sso"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole_in_any_writing() {
        for (text, phrases, found) in [
            ("Passwort:", &["passwort"] as &[&str], true),
            ("userName", &["user name"], true),
            ("login_email-address", &["email"], true),
            ("Contraseña *", &["contrasena"], true),
            ("Überprüfen", &["uberprufen"], true),
            ("Zipcode", &["code"], false),
            ("promo-code", &["code"], true),
            ("Ungültiges Kennwort", &["ungultig*"], true),
            ("Mot de passe oublié ?", &["oublie*"], true),
            ("e\u{301}cran", &["ecran"], true),
            ("", &["x"], false),
        ] {
            assert_eq!(says(&fold(text), phrases), found, "{text}: {}", fold(text));
        }
    }

    #[test]
    fn every_phrase_is_written_as_folded_text_is() {
        for phrase in lists::ALL.iter().copied().flatten() {
            let phrase = phrase.trim_end_matches('*');
            assert_eq!(fold(phrase).trim(), phrase);
        }
    }
}
