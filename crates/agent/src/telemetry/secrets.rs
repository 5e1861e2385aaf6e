//! What pages send and nobody else is to read.

use std::borrow::Cow;

use serde_json::Value;

/// In the place of a secret.
pub(super) const REDACTED: &str = "[redacted]";
/// Words in the names and labels of fields that hold secrets, wherever they stand, without what separates them: of passwords in the
/// common languages, of cards, of codes for one time and of keys.
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
];
/// Such words that tell only as one of several: elsewhere they are a part of others.
pub(super) const PARTS: &[&str] = &["pin", "tan", "pw", "psw", "mdp", "cvn", "mfa", "authorization"];
/// What tells only as the whole of a name.
pub(super) const NAMES: &[&str] = &["p", "code", "código", "codigo", "codice", "kod", "验证码"];

/// The words of a name, in small letters: `newPassword[0]` has the words `new`, `password` and `0`.
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

/// Whether a field of this name holds a secret. The script in the pages asks the same of names and labels.
fn is_secret(name: &str) -> bool {
    let parts = words(name);
    let whole = parts.concat();
    WORDS.iter().any(|word| whole.contains(word))
        || parts.iter().any(|part| PARTS.contains(&part.as_str()))
        || NAMES.contains(&whole.as_str())
}

/// Whether a text in which names stand has one of a secret.
fn has_secret(text: &str) -> bool {
    is_secret(text) || words(text).iter().any(|word| NAMES.contains(&word.as_str()))
}

/// A name as a form has it, before its bytes were written as text.
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
    if has_secret(body) { REDACTED.into() } else { body.into() }
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
    let secret = |pair: &str| pair.split_once('=').is_some_and(|(name, _)| is_secret(&decoded(name)));
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
    fn a_field_of_a_secret_is_known_by_its_name_in_the_common_languages_and_however_it_is_written() {
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
            assert_eq!(told_body(FORM, &format!("a=1&{name}=5")), format!("a=1&{name}={REDACTED}"));
        }
        assert_eq!(told_body("application/json", r#"{"code":"12"#), REDACTED);
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
