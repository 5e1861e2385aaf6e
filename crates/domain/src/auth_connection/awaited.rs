//! The fields and choices that a flow waits for.

use crate::login_page::{Choice, ChoiceKind, Field, FieldKind, InputKind, MAX_OPTIONS, MfaKind};

/// A field that a flow waits for. All texts come from the page: cleaned and bounded, but not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedField {
    /// Its id, fixed for the life of the flow.
    pub id: String,
    /// The name under which its value is stored.
    pub name: String,
    /// Its label on the page.
    pub label: String,
    /// Its description on the page.
    pub hint: Option<String>,
    /// Its placeholder.
    pub placeholder: Option<String>,
    /// Its purpose.
    pub kind: FieldKind,
    /// Its type of input.
    pub input: InputKind,
    /// The second factor that it belongs to.
    pub mfa: Option<MfaKind>,
    /// Whether it is required.
    pub required: bool,
    /// The allowed values; empty: any value.
    pub options: Vec<String>,
    /// Its CSS selector, for people.
    pub selector: String,
}

/// A choice that a flow waits for. All texts come from the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedChoice {
    /// Its id, fixed for the life of the flow.
    pub id: String,
    /// Its kind.
    pub kind: ChoiceKind,
    /// Its label on the page.
    pub label: String,
    /// The text beside it.
    pub description: Option<String>,
    /// Its CSS selector, for people.
    pub selector: String,
    /// Its XPath, for people.
    pub xpath: String,
    /// The second factor that it stands for.
    pub mfa: Option<MfaKind>,
    /// The masked target of a code.
    pub target: Option<String>,
    /// The SSO provider: `google`.
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
            // The options of a longer list are not all known.
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
