//! Tools that callers add to a session.

use super::ToolHints;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, check_length, check_max_bytes};

/// A tool that a caller has added to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomTool {
    /// Its id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Where its function runs.
    pub kind: CustomToolKind,
    /// The patterns of the documents for which it is listed.
    pub url_patterns: Vec<String>,
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// Its description.
    pub description: String,
    /// The JSON schema of its input as JSON text.
    pub input_schema: String,
    /// The JSON schema of its output as JSON text, if one is given.
    pub output_schema: Option<String>,
    /// Hints about its effects.
    pub hints: ToolHints,
}

/// Where the function of a custom tool runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomToolKind {
    /// In the page.
    Page,
    /// Beside the browser, as a script.
    Cdp,
}

/// Custom tools to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCustomTools {
    /// The namespace of all tools.
    pub namespace: String,
    /// A JavaScript expression whose value is an array of definitions.
    pub source: String,
    /// True if the other tools of the namespace are removed.
    pub overwrites: bool,
}

impl NewCustomTools {
    /// The pattern of namespaces.
    pub const NAMESPACE_PATTERN: &str = "^[A-Za-z0-9_.-]+$";
    /// The longest namespace, in characters.
    pub const MAX_NAMESPACE: usize = 128;
    /// The longest source, in bytes.
    pub const MAX_SOURCE: usize = 8_000_000;

    /// Checks a namespace of 1 to 128 ASCII letters, digits, `_`, `.` and `-`, and a source that is not empty. The source
    /// itself is checked in the session.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(
        namespace: Option<String>,
        source: Option<String>,
        overwrites: Option<bool>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let namespace = fields.take_required("namespace", namespace, |text| {
            check_length(&text, Self::MAX_NAMESPACE)?;
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            let rule = "must consist of ASCII letters, digits, '_', '.' and '-'";
            text.chars().all(allowed).then_some(text).ok_or_else(|| InvalidValue::new(FieldCode::InvalidFormat, rule))
        });
        let source = fields.take_required("source", source, |text| {
            check_max_bytes(&text, Self::MAX_SOURCE)?;
            check_length(&text, Self::MAX_SOURCE).map(|()| text)
        });
        fields.finish_with(|| {
            Some(Self { namespace: namespace?, source: source?, overwrites: overwrites.unwrap_or_default() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(namespace: &str, source: &str) -> Vec<(String, FieldCode)> {
        let parsed = NewCustomTools::parse(Some(namespace.to_owned()), Some(source.to_owned()), None);
        parsed.expect_err("it is refused").fields().iter().map(|error| (error.field.clone(), error.code)).collect()
    }

    #[test]
    fn custom_tools_have_a_namespace_and_a_source_within_bounds() {
        let reported = |field: &str, code| (field.to_owned(), code);
        assert_eq!(
            refused("", ""),
            [reported("namespace", FieldCode::TooShort), reported("source", FieldCode::TooShort)]
        );
        assert_eq!(refused("a b", "[]"), [reported("namespace", FieldCode::InvalidFormat)]);
        let (long_name, long_source) = ("n".repeat(129), "é".repeat(4_000_001));
        assert_eq!(
            refused(&long_name, &long_source),
            [reported("namespace", FieldCode::TooLong), reported("source", FieldCode::TooLong)]
        );
        let longest = "é".repeat(4_000_000);
        let accepted = NewCustomTools::parse(Some("shop.example_1-a".to_owned()), Some(longest), None);
        assert!(accepted.is_ok_and(|tools| !tools.overwrites));
    }
}
