//! Redacts the secrets that pages send.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::graphql;

/// The replacement of a secret.
pub(super) const REDACTED: &str = "[redacted]";
/// The words that mark names and labels of secret fields anywhere in a name, without separators: passwords in the
/// common languages, cards, one-time codes and keys.
pub(super) const WORDS: &[&str] = &[
    "pass",
    "pwd",
    "pswd",
    "kennwort",
    "motdepasse",
    "contrasena",
    "contraseña",
    "clave",
    "senha",
    "parola",
    "wachtwoord",
    "lösenord",
    "losenord",
    "adgangskode",
    "salasana",
    "hasło",
    "haslo",
    "heslo",
    "jelszó",
    "jelszo",
    "lozinka",
    "şifre",
    "sifre",
    "пароль",
    "κωδικόςπρόσβασης",
    "密码",
    "密碼",
    "パスワード",
    "暗証番号",
    "비밀번호",
    "סיסמה",
    "كلمةالمرور",
    "matkhau",
    "mậtkhẩu",
    "katasandi",
    "secret",
    "token",
    "otp",
    "onetime",
    "twofactor",
    "verificationcode",
    "verifycode",
    "confirmationcode",
    "securitycode",
    "authcode",
    "authenticationcode",
    "accesscode",
    "logincode",
    "smscode",
    "mfacode",
    "2fa",
    "sicherheitscode",
    "bestätigungscode",
    "codedesécurité",
    "codigodeseguridad",
    "códigodeseguridad",
    "cvc",
    "cvv",
    "csc",
    "card",
    "ccnum",
    "ccexp",
    "cccsc",
    "kreditkarte",
    "kartennummer",
    "tarjeta",
    "iban",
    "ssn",
    "apikey",
    "accesskey",
    "privatekey",
    "subscriptionkey",
    "csrf",
    "xsrf",
    "sessionid",
    "sessionkey",
    "cookie",
    "credential",
    "signature",
    "assertion",
    "samlresponse",
    "bearer",
];
/// The words that mark a secret only as a complete part of a name.
pub(super) const PARTS: &[&str] =
    &["pin", "tan", "pw", "psw", "mdp", "cvn", "mfa", "auth", "authorization", "jwt", "sid", "jsessionid", "phpsessid"];
/// The words that mark a secret only as the complete name.
pub(super) const NAMES: &[&str] = &["p", "code", "código", "codigo", "codice", "kod", "验证码"];

/// Splits a name into its words, in lower case: `newPassword[0]` has the words `new`, `password` and `0`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        if letter.is_uppercase() && (before.is_lowercase() || before.is_numeric()) || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns true if a field of this name holds a secret. The script in pages checks names and labels by the same words.
pub(super) fn is_secret(name: &str) -> bool {
    let parts = words(name);
    let whole = parts.concat();
    WORDS.iter().any(|word| whole.contains(word))
        || parts.iter().any(|part| PARTS.contains(&part.as_str()))
        || NAMES.contains(&whole.as_str())
}

/// Returns true if a text contains the name of a secret.
fn has_secret(text: &str) -> bool {
    is_secret(text) || words(text).iter().any(|word| NAMES.contains(&word.as_str()))
}

/// Decodes a URL-encoded name.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Further words in the names of secret headers.
const HEADER_WORDS: [&str; 5] = ["session", "oauth", "dpop", "hmac", "ticket"];

/// Returns true if a header holds a credential, by its name or by the form of its value.
pub(super) fn is_secret_header(name: &str, value: &str) -> bool {
    let parts = words(name);
    let whole = parts.concat();
    // These headers only name the requested scheme.
    if whole == "wwwauthenticate" || whole == "proxyauthenticate" {
        return false;
    }
    let author =
        |part: &str| part.starts_with("author") && !part.starts_with("authoriz") && !part.starts_with("authoris");
    let part = |part: &str| {
        part.ends_with("key") || part.ends_with("auth") || part == "sig" || (part.starts_with("auth") && !author(part))
    };
    is_secret(name)
        || HEADER_WORDS.iter().any(|word| whole.contains(word))
        || parts.iter().any(|one| part(one))
        || looks_secret(value)
}

/// Returns true for an authentication scheme with a value, or a JSON Web Token.
fn looks_secret(value: &str) -> bool {
    let scheme = value.trim_start().split_once(' ').map(|(scheme, _)| scheme).unwrap_or_default();
    let schemes = ["bearer", "basic", "digest", "negotiate", "ntlm", "dpop", "aws4-hmac-sha256"];
    let token = |word: &str| word.starts_with("eyJ") && word.split('.').count() >= 3;
    schemes.iter().any(|one| scheme.eq_ignore_ascii_case(one)) || value.split([' ', '=', ';', ',', '"']).any(token)
}

/// Redacts the secret fields of a body. A body that cannot be parsed, for example because it is truncated, is replaced
/// completely if it contains the name of a secret.
pub(super) fn redacted_body<'a>(content_type: &str, body: &'a str) -> Cow<'a, str> {
    let content_type = content_type.to_ascii_lowercase();
    if content_type.contains("form-data") {
        return parts(body);
    }
    match body.trim_start().as_bytes().first() {
        _ if content_type.contains("graphql") && !content_type.contains("json") => graphql::redacted(body).into(),
        Some(b'{' | b'[') => json(body),
        _ if content_type.contains("json") || content_type.contains("xml") => redacted_if_secret(body),
        Some(b'<') => redacted_if_secret(body),
        _ => fields(body),
    }
}

fn redacted_if_secret(body: &str) -> Cow<'_, str> {
    if has_secret(body) { REDACTED.into() } else { body.into() }
}

fn json(body: &str) -> Cow<'_, str> {
    let Ok(mut value) = serde_json::from_str::<Value>(body) else { return redacted_if_secret(body) };
    if redact(&mut value) { value.to_string().into() } else { body.into() }
}

/// Redacts a value; returns true if anything was redacted.
fn redact(value: &mut Value) -> bool {
    match value {
        Value::Array(values) => values.iter_mut().fold(false, |found, value| redact(value) | found),
        Value::Object(members) => {
            let named = names_secret(members);
            members.iter_mut().fold(false, |found, (name, value)| {
                let of_named = named && matches!(name.as_str(), "value" | "val" | "content" | "data");
                let secret = (of_named || is_secret(name)) && !matches!(value, Value::Null | Value::Bool(_));
                if secret {
                    *value = REDACTED.into();
                }
                secret || redact(value) | found
            })
        }
        Value::String(text) => match redacted_text(text) {
            Some(redacted) => {
                *text = redacted;
                true
            }
            None => false,
        },
        _ => false,
    }
}

/// Returns true for an object that describes a secret field by its name: `{"name": "password", "value": "…"}`.
fn names_secret(members: &Map<String, Value>) -> bool {
    ["name", "key", "field", "id"].iter().any(|name| members.get(*name).and_then(Value::as_str).is_some_and(is_secret))
}

/// Redacts a text that contains a body of its own; `None` if nothing was redacted.
fn redacted_text(text: &str) -> Option<String> {
    let body = matches!(text.trim_start().as_bytes().first(), Some(b'{' | b'['));
    if body && let Ok(mut value) = serde_json::from_str::<Value>(text) {
        return redact(&mut value).then(|| value.to_string());
    }
    let redacted = graphql::is_document(text).then(|| graphql::redacted(text))?;
    (redacted != text).then_some(redacted)
}

/// Redacts `name=value&…`; any other text has no such names.
fn fields(body: &str) -> Cow<'_, str> {
    let secret = |pair: &str| {
        pair.split_once('=')
            .is_some_and(|(name, value)| is_secret(&decoded(name)) || redacted_text(&decoded(value)).is_some())
    };
    if !body.split('&').any(secret) {
        return body.into();
    }
    let redacted = body.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if secret(pair) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    });
    redacted.collect::<Vec<_>>().join("&").into()
}

/// Redacts the parts of a multipart body, whose first line is the boundary.
fn parts(body: &str) -> Cow<'_, str> {
    let Some(boundary) = body.lines().next().filter(|line| line.len() > 2 && line.starts_with("--")) else {
        return redacted_if_secret(body);
    };
    let redacted = body.split(boundary).map(|part| match part.split_once("\r\n\r\n") {
        Some((head, content)) if is_secret_part(head) || redacted_text(content.trim()).is_some() => {
            format!("{head}\r\n\r\n{REDACTED}\r\n")
        }
        _ => part.to_owned(),
    });
    redacted.collect::<Vec<_>>().join(boundary).into()
}

fn is_secret_part(head: &str) -> bool {
    head.split(';').filter_map(|one| one.trim().strip_prefix("name=")).any(is_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = "application/x-www-form-urlencoded";

    #[test]
    fn secret_fields_are_redacted_in_all_encodings_of_a_form() {
        let redacted = redacted_body(FORM, "user=ada&Password=a%26b&card_number=4111&csrf-token=x&pin=1&note=pass");
        let gone = REDACTED;
        let expected = format!("user=ada&Password={gone}&card_number={gone}&csrf-token={gone}&pin={gone}&note=pass");
        assert_eq!(redacted, expected);

        let body =
            r#"{"user":"ada","login":{"newPassword":"x","n":[{"api_key":7},{"remember_token":true}]},"cvv":null}"#;
        let redacted: Value = serde_json::from_str(&redacted_body("application/json", body)).expect("JSON");
        assert_eq!((&redacted["user"], &redacted["login"]["newPassword"]), (&"ada".into(), &gone.into()));
        assert_eq!(redacted["login"]["n"], serde_json::json!([{ "api_key": gone }, { "remember_token": true }]));
        assert_eq!(redacted_body("text/plain;charset=UTF-8", r#"{"token":"x"}"#), format!(r#"{{"token":"{gone}"}}"#));

        let part = |name: &str, value: &str| {
            format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let body = |word: &str| part("user", "ada") + &part("passwd", word) + &part("shoe_size", "44") + "--xyz--\r\n";
        assert_eq!(redacted_body("multipart/form-data; boundary=xyz", &body("a\r\n\r\nb")), body(gone));
    }

    #[test]
    fn secret_names_are_recognized_in_common_languages_and_spellings() {
        for name in [
            "p",
            "pw",
            "passwd",
            "user[password]",
            "kennwort",
            "Passwort",
            "mot_de_passe",
            "mdp",
            "contraseña",
            "contrase%C3%B1a",
            "clave",
            "senha",
            "wachtwoord",
            "hasło",
            "пароль",
            "密码",
            "パスワード",
            "code",
            "Code",
            "smsCode",
            "sms-code",
            "verification_code",
            "otp",
            "mfa",
            "tan",
            "loginPin",
            "cc-number",
            "cc_number",
            "ccNumber",
            "cc-exp",
            "card[number]",
            "api-key",
            "kennw%6Frt",
        ] {
            assert_eq!(redacted_body(FORM, &format!("a=1&{name}=5")), format!("a=1&{name}={REDACTED}"));
        }
        assert_eq!(redacted_body("application/json", r#"{"code":"12"#), REDACTED);
        assert_eq!(words("newPassword[0].Pin2x"), ["new", "password", "0", "pin2x"]);
        for name in [
            "zip_code",
            "countryCode",
            "postal-code",
            "promo code",
            "opinion",
            "shipping",
            "page",
            "spin",
            "step",
            "title",
            "cc",
            "tanning",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn secrets_in_nested_bodies_are_redacted() {
        let gone = REDACTED;
        for (body, expected) in [
            (
                r#"{"query":"mutation { login(user: \"ada\", password: \"hunter2\") { id } }","variables":{"pw":"x","n":1}}"#,
                serde_json::json!({
                    "query": "mutation { login(user: \"[redacted]\", password: \"[redacted]\") { id } }",
                    "variables": { "pw": gone, "n": 1 },
                }),
            ),
            (
                r#"[{"query":"query Q($token: T) { a(t: $token) }","variables":"{\"token\":\"x\",\"n\":1}"}]"#,
                serde_json::json!([{
                    "query": "query Q($token: T) { a(t: $token) }", "variables": r#"{"n":1,"token":"[redacted]"}"#,
                }]),
            ),
            (
                r#"[{"name":"user","value":"ada"},{"name":"password","value":"x"}]"#,
                serde_json::json!([{ "name": "user", "value": "ada" }, { "name": "password", "value": gone }]),
            ),
            (r#"{"query":"password: \"x\""}"#, serde_json::json!({ "query": "password: \"x\"" })),
        ] {
            let redacted: Value = serde_json::from_str(&redacted_body("application/json", body)).expect("JSON");
            assert_eq!(redacted, expected);
        }
        assert_eq!(redacted_body("application/graphql", "{ a(b: \"x\") }"), r#"{ a(b: "[redacted]") }"#);
        let form = "n=1&variables=%7B%22password%22%3A%22x%22%7D&query=mutation+%7B+a%28b%3A+%22x%22%29+%7D";
        assert_eq!(redacted_body(FORM, form), format!("n=1&variables={gone}&query={gone}"));
        let part =
            |value: &str| format!("--x\r\nContent-Disposition: form-data; name=\"operations\"\r\n\r\n{value}\r\n--x--");
        assert_eq!(redacted_body("multipart/form-data", &part(r#"{"variables":{"password":"x"}}"#)), part(gone));
        for xml in ["<login><password>x</password></login>", "<?xml version=\"1.0\"?><a token=\"x\"/>"] {
            assert_eq!(redacted_body("text/xml", xml), gone);
            assert_eq!(redacted_body("", xml), gone);
        }
    }

    #[test]
    fn headers_with_credentials_are_recognized() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "Cookie",
            "Set-Cookie",
            "X-Api-Key",
            "X-Auth-Token",
            "X-CSRF-Token",
            "X-XSRF-TOKEN",
            "X-Auth",
            "X-Access-Token",
            "X-Amz-Security-Token",
            "X-Hub-Signature-256",
            "X-Session-Id",
            "X-Goog-Api-Key",
            "apikey",
            "Ocp-Apim-Subscription-Key",
            "RequestVerificationToken",
            "DPoP",
            "X-Vault-Token",
            "X-Client-Secret",
            "X-Password",
            "Authentication",
            "X-Authentication",
            "X-Basic-Auth",
            "X-OAuth-Scopes",
            "X-Amz-Credential",
        ] {
            assert!(is_secret_header(name, "x"), "{name}");
        }
        for name in [
            "Accept",
            "Content-Type",
            ":authority",
            "Host",
            "Referer",
            "User-Agent",
            "WWW-Authenticate",
            "Proxy-Authenticate",
            "X-Author",
            "ETag",
            "Cache-Control",
            "Sec-CH-UA-Platform",
            "Origin",
            "Keep-Alive",
            "Content-Security-Policy",
        ] {
            assert!(!is_secret_header(name, "x"), "{name}");
        }
        for value in ["Bearer x", "basic eHk=", "eyJhbGciOiJub25lIn0.eyJhIjoxfQ.", "id=eyJh.eyJh.x; Path=/"] {
            assert!(is_secret_header("X-Identity", value), "{value}");
        }
        assert!(!is_secret_header("X-Identity", "the bearer of this"));
    }

    #[test]
    fn bodies_without_secrets_are_unchanged() {
        for (kind, body) in [
            (FORM, "asked=1&spin=2&opinion=x"),
            ("application/json", r#"{"a":  1, "shipping":"x"}"#),
            ("application/json", "cut {"),
            ("text/plain", "my password is long"),
            ("", ""),
            ("multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--"),
        ] {
            assert_eq!(redacted_body(kind, body), body);
        }
    }

    #[test]
    fn truncated_bodies_are_redacted_if_they_name_a_secret() {
        assert_eq!(redacted_body("application/json", r#"{"password":"abc"#), REDACTED);
        assert_eq!(redacted_body("application/json", r#"{"name":"abc"#), r#"{"name":"abc"#);
        assert_eq!(redacted_body("multipart/form-data", "name=\"token\"\r\n\r\nx"), REDACTED);
    }
}
