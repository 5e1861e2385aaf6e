//! What a flow waits for: values and choices, as a page asked for them.

use crate::login_page::{Choice, ChoiceKind, Field, FieldKind, InputKind, MAX_OPTIONS, MfaKind};

/// A value that is waited for. All texts are the page's: cleaned and bounded, not to be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedField {
    /// Names it for the life of its flow.
    pub id: String,
    /// The name that its value is kept under.
    pub name: String,
    /// What it is for.
    pub kind: FieldKind,
    /// What is typed into it.
    pub input: InputKind,
    /// What the page calls it.
    pub label: String,
    /// What the page says of it.
    pub hint: Option<String>,
    /// What stands in it while it is empty.
    pub placeholder: Option<String>,
    /// How to find it by hand: CSS.
    pub selector: String,
    /// Whether it must have a value.
    pub required: bool,
    /// Which second factor it is of.
    pub mfa: Option<MfaKind>,
    /// What its value is one of; empty: it may be anything.
    pub options: Vec<String>,
}

/// A choice that is waited for. All texts are the page's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedChoice {
    /// Names it for the life of its flow.
    pub id: String,
    /// What it is about.
    pub kind: ChoiceKind,
    /// What the page calls it.
    pub label: String,
    /// What stands beside it.
    pub description: Option<String>,
    /// How to find it by hand: CSS.
    pub selector: String,
    /// How to find it by hand: XPath.
    pub xpath: String,
    /// Which second factor it is.
    pub mfa: Option<MfaKind>,
    /// Where a code goes, masked.
    pub target: Option<String>,
    /// Whose button it is: `google`.
    pub provider: Option<String>,
}

impl From<&Field> for RequestedField {
    fn from(field: &Field) -> Self {
        Self {
            id: field.key.clone(),
            name: field.reference.clone(),
            kind: field.kind,
            input: field.input,
            label: field.label.clone(),
            hint: field.hint.clone(),
            placeholder: field.placeholder.clone(),
            selector: field.selector.clone(),
            required: field.required,
            mfa: field.mfa,
            // Of a longer list not all are known.
            options: if field.options.len() < MAX_OPTIONS { field.options.clone() } else { Vec::new() },
        }
    }
}

impl From<&Choice> for RequestedChoice {
    fn from(choice: &Choice) -> Self {
        Self {
            id: choice.key.clone(),
            kind: choice.kind,
            label: choice.label.clone(),
            description: choice.description.clone(),
            selector: choice.selector.clone(),
            xpath: choice.xpath.clone(),
            mfa: choice.mfa,
            target: choice.target.clone(),
            provider: choice.provider.clone(),
        }
    }
}
