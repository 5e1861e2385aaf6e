//! What pages send and nobody else is to read.

use std::borrow::Cow;

use serde_json::Value;

/// In the place of a secret.
pub(super) const REDACTED: &str = "[redacted]";
/// Words in the names of fields that hold secrets.
const WORDS: [&str; 17] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "otp",
    "cvc",
    "cvv",
    "csc",
    "card",
    "ccnum",
    "iban",
    "ssn",
    "securitycode",
    "onetime",
    "apikey",
    "verificationcode",
    "authorization",
];
/// Whole names of such fields, and what others end in.
const NAMES: [&str; 1] = ["pin"];

/// Whether a field of this name holds a secret.
fn is_secret(name: &str) -> bool {
    let parts: Vec<String> = name.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_lowercase).collect();
    let whole = parts.concat();
    WORDS.iter().any(|word| whole.contains(word)) || parts.iter().any(|part| NAMES.contains(&part.as_str()))
}

/// A body that a page sends, without what its fields say whose names tell of a secret. One that says of itself to be of such fields
/// and cannot be read, because it was cut for example, is told only if no such name is in it.
pub(super) fn told_body<'a>(content_type: &str, body: &'a str) -> Cow<'a, str> {
    let content_type = content_type.to_ascii_lowercase();
    if content_type.contains("form-data") {
        return parts(body);
    }
    match body.trim_start().as_bytes().first() {
        Some(b'{' | b'[') => json(body),
        _ if content_type.contains("json") => unread(body),
        _ => fields(body),
    }
}

fn unread(body: &str) -> Cow<'_, str> {
    if is_secret(body) { REDACTED.into() } else { body.into() }
}

fn json(body: &str) -> Cow<'_, str> {
    let Ok(mut value) = serde_json::from_str::<Value>(body) else { return unread(body) };
    if redact(&mut value) { value.to_string().into() } else { body.into() }
}

/// Whether there was something to redact.
fn redact(value: &mut Value) -> bool {
    match value {
        Value::Array(values) => values.iter_mut().fold(false, |found, value| redact(value) | found),
        Value::Object(members) => members.iter_mut().fold(false, |found, (name, value)| {
            let secret = is_secret(name) && !matches!(value, Value::Null | Value::Bool(_));
            if secret {
                *value = REDACTED.into();
            }
            secret || redact(value) | found
        }),
        _ => false,
    }
}

/// `name=value&…`; anything else is found to have no such names.
fn fields(body: &str) -> Cow<'_, str> {
    let secret = |pair: &str| pair.split_once('=').is_some_and(|(name, _)| is_secret(&name.replace("%5F", "_")));
    if !body.split('&').any(secret) {
        return body.into();
    }
    let told = body.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if secret(pair) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    });
    told.collect::<Vec<_>>().join("&").into()
}

/// The parts between the boundary, which is the body's first line.
fn parts(body: &str) -> Cow<'_, str> {
    let Some(boundary) = body.lines().next().filter(|line| line.len() > 2 && line.starts_with("--")) else {
        return unread(body);
    };
    let told = body.split(boundary).map(|part| match part.split_once("\r\n\r\n") {
        Some((head, _)) if is_secret_part(head) => format!("{head}\r\n\r\n{REDACTED}\r\n"),
        _ => part.to_owned(),
    });
    told.collect::<Vec<_>>().join(boundary).into()
}

fn is_secret_part(head: &str) -> bool {
    head.split(';').filter_map(|one| one.trim().strip_prefix("name=")).any(is_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = "application/x-www-form-urlencoded";

    #[test]
    fn fields_whose_names_tell_of_a_secret_are_redacted_in_every_form_of_a_form() {
        let told = told_body(FORM, "user=ada&Password=a%26b&card_number=4111&csrf-token=x&pin=1&note=pass");
        let gone = REDACTED;
        let expected = format!("user=ada&Password={gone}&card_number={gone}&csrf-token={gone}&pin={gone}&note=pass");
        assert_eq!(told, expected);

        let body =
            r#"{"user":"ada","login":{"newPassword":"x","n":[{"api_key":7},{"remember_token":true}]},"cvv":null}"#;
        let told: Value = serde_json::from_str(&told_body("application/json", body)).expect("JSON");
        assert_eq!((&told["user"], &told["login"]["newPassword"]), (&"ada".into(), &gone.into()));
        assert_eq!(told["login"]["n"], serde_json::json!([{ "api_key": gone }, { "remember_token": true }]));
        assert_eq!(told_body("text/plain;charset=UTF-8", r#"{"token":"x"}"#), format!(r#"{{"token":"{gone}"}}"#));

        let part = |name: &str, value: &str| {
            format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let body = |word: &str| part("user", "ada") + &part("passwd", word) + &part("shoe_size", "44") + "--xyz--\r\n";
        assert_eq!(told_body("multipart/form-data; boundary=xyz", &body("a\r\n\r\nb")), body(gone));
    }

    #[test]
    fn what_has_no_secret_is_told_as_it_is() {
        for (kind, body) in [
            (FORM, "asked=1&spin=2&opinion=x"),
            ("application/json", r#"{"a":  1, "shipping":"x"}"#),
            ("application/json", "cut {"),
            ("text/plain", "my password is long"),
            ("", ""),
            ("multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--"),
        ] {
            assert_eq!(told_body(kind, body), body);
        }
    }

    #[test]
    fn what_cannot_be_read_to_its_end_is_told_only_if_no_secret_is_named() {
        assert_eq!(told_body("application/json", r#"{"password":"abc"#), REDACTED);
        assert_eq!(told_body("application/json", r#"{"name":"abc"#), r#"{"name":"abc"#);
        assert_eq!(told_body("multipart/form-data", "name=\"token\"\r\n\r\nx"), REDACTED);
    }
}
