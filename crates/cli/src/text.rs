//! Text of a server for a terminal: a server's data may come from web pages, so it must not control the terminal.

use serde_json::Value;

/// Removes control characters.
pub(crate) fn without_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Removes control characters from JSON: escapes them in strings, and replaces carriage returns with blanks.
pub(crate) fn json_without_controls(json: &str) -> String {
    json.chars()
        .map(|c| match c {
            '\r' => " ".to_owned(),
            c if c.is_control() && c != '\n' && c != '\t' => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect()
}

/// Returns a member of an object as text; empty if it is missing.
pub(crate) fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{json_without_controls, without_controls};

    #[test]
    fn printed_text_has_no_control_characters() {
        assert_eq!(without_controls("a\u{1b}[2Jb\u{9b}2Jc\td"), "a\u{fffd}[2Jb\u{fffd}2Jc\td");
        let sent = "{\"a\":\r\n \"\u{9b}2J \u{7f} \\u001b ä\"}";
        let printed = json_without_controls(sent);
        assert_eq!(printed, "{\"a\": \n \"\\u009b2J \\u007f \\u001b ä\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(&printed), value(sent));
    }
}
