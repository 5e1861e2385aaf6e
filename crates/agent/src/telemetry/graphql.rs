//! Redacts GraphQL documents that pages send. Every value may be a secret, regardless of the name of its argument.

use super::secrets::{REDACTED, is_secret};

/// Returns true if a text is a GraphQL document.
pub(super) fn is_document(text: &str) -> bool {
    let start = start(text);
    let keyword = start.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    matches!(keyword, "query" | "mutation" | "subscription" | "fragment" | "")
        && start.contains('{')
        && start.starts_with(|c: char| c == '{' || c.is_ascii_alphabetic())
}

/// Skips the comments at the beginning of a text.
fn start(text: &str) -> &str {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    while let Some(comment) = rest.strip_prefix('#') {
        rest = comment.split_once('\n').map_or("", |(_, rest)| rest.trim_start());
    }
    rest
}

/// Redacts the strings of a document, and other values of arguments with secret names. Variables stay, because their
/// values are outside of the document. Comments are removed.
pub(super) fn redacted(document: &str) -> String {
    let mut redactor = DocumentRedactor { text: String::with_capacity(document.len()), ..DocumentRedactor::default() };
    let mut rest = document;
    while let Some(first) = rest.chars().next() {
        let (token, behind) = rest.split_at(length(rest, first));
        rest = behind;
        redactor.token(first, token);
    }
    redactor.text
}

#[derive(Default)]
struct DocumentRedactor<'a> {
    text: String,
    /// The last name.
    name: &'a str,
    /// True if it is the name of a variable.
    is_variable: bool,
    /// True if a secret value follows.
    secret: bool,
    /// True if a default of a variable that follows is secret.
    default_secret: bool,
    /// The nesting in the lists and objects of a secret value.
    depth: u32,
}

impl<'a> DocumentRedactor<'a> {
    fn token(&mut self, first: char, token: &'a str) {
        match first {
            '#' => return,
            '"' => self.text.extend(["\"", REDACTED, "\""]),
            _ if self.secret && is_word(first) => self.text.push_str(REDACTED),
            _ => self.text.push_str(token),
        }
        match first {
            ':' if self.depth == 0 && self.is_variable => {
                self.default_secret = is_secret(self.name);
                self.secret = false;
            }
            ':' if self.depth == 0 => self.secret = is_secret(self.name),
            '=' => self.secret = self.default_secret,
            '[' | '{' if self.secret => self.depth += 1,
            ']' | '}' if self.secret => {
                self.depth = self.depth.saturating_sub(1);
                self.secret = self.depth > 0;
            }
            '"' => self.secret = self.depth > 0,
            _ if first == '$' || is_word(first) => {
                (self.name, self.is_variable) = (token.trim_start_matches('$'), first == '$');
                self.secret &= self.depth > 0;
            }
            _ => {}
        }
    }
}

fn is_word(first: char) -> bool {
    first.is_alphanumeric() || matches!(first, '_' | '-' | '+' | '.')
}

/// Returns the length in bytes of the token that begins with this character.
fn length(text: &str, first: char) -> usize {
    let word = |from: usize| text[from..].find(|c| !is_word(c)).map_or(text.len(), |end| from + end);
    match first {
        '"' => string_length(text),
        '#' => text.find('\n').unwrap_or(text.len()),
        '$' => word(1),
        _ if is_word(first) => word(0),
        _ => first.len_utf8(),
    }
}

/// Returns the length of a string, or of a block string in three quotes. Without an end it is the whole text.
fn string_length(text: &str) -> usize {
    let (quotes, escape) = if text.starts_with("\"\"\"") { ("\"\"\"", "\\\"\"\"") } else { ("\"", "\\") };
    let mut at = quotes.len();
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(quotes) {
            return at + quotes.len();
        }
        let next = rest.chars().next().map_or(1, char::len_utf8);
        let escaped = quotes.len() == 1 && rest.starts_with(escape);
        at += match rest.strip_prefix(escape) {
            Some(after) if escaped => 1 + after.chars().next().map_or(0, char::len_utf8),
            Some(_) => escape.len(),
            None => next,
        };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_secret_values_are_redacted() {
        for (document, expected) in [
            (
                r#"mutation { login(user: "ada", password: "a\"b") { id } }"#,
                r#"mutation { login(user: "[redacted]", password: "[redacted]") { id } }"#,
            ),
            (
                "{ a(pin: 1234, n: 5, tokens: [1, -2], m: [1], code: {x: 1}) { code pin } }",
                "{ a(pin: [redacted], n: 5, tokens: [[redacted], [redacted]], m: [1], code: {[redacted]: [redacted]}) { code pin } }",
            ),
            (
                "mutation L($password: String!, $pin: Int = 1234, $n: Int = 5) { l(p: $password, q: $pin) }",
                "mutation L($password: String!, $pin: Int = [redacted], $n: Int = 5) { l(p: $password, q: $pin) }",
            ),
            ("{ a(b: \"\"\"x \\\"\"\" y\"\"\", c: \"\") }", r#"{ a(b: "[redacted]", c: "[redacted]") }"#),
            ("{ a(b: \"no end, c: 1) }", r#"{ a(b: "[redacted]""#),
            ("{ a # \"password\n b }", "{ a \n b }"),
            ("{ a(input: {password: 5, n: 1}) }", "{ a(input: {password: [redacted], n: 1}) }"),
        ] {
            assert_eq!(redacted(document), expected);
        }
    }

    #[test]
    fn documents_are_recognized() {
        for document in
            ["{ a }", "query { a }", "mutation L($a: B) {\n a }", "# a\n fragment F on T { a }", "subscription{a}"]
        {
            assert!(is_document(document), "{document}");
        }
        for other in ["", "search words", "querying { things", "query", "# only", "(a) {", "1 {"] {
            assert!(!is_document(other), "{other}");
        }
    }
}
