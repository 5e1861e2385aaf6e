//! The fields and choices that a flow waits for.

use crate::login_page::{Choice, ChoiceKind, Field, FieldKind, InputKind, MAX_OPTIONS, MfaKind};

/// A field that a flow waits for. All texts come from the page; they are cleaned and bounded, but not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedField {
    /// The id, constant for the flow.
    pub id: String,
    /// The name under which the value is stored.
    pub name: String,
    /// The label on the page.
    pub label: String,
    /// The description on the page.
    pub hint: Option<String>,
    /// The placeholder.
    pub placeholder: Option<String>,
    /// The purpose.
    pub kind: FieldKind,
    /// The type of input.
    pub input: InputKind,
    /// The second factor that the field belongs to.
    pub mfa: Option<MfaKind>,
    /// True if a value is required.
    pub required: bool,
    /// The allowed values; empty: any value.
    pub options: Vec<String>,
    /// The CSS selector, for people.
    pub selector: String,
    /// True if the site refused the value that was sent; false if the value was not known.
    pub rejected: bool,
}

/// A choice that a flow waits for. All texts come from the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedChoice {
    /// The id, constant for the flow.
    pub id: String,
    /// The kind.
    pub kind: ChoiceKind,
    /// The label on the page.
    pub label: String,
    /// The text beside the choice.
    pub description: Option<String>,
    /// The CSS selector, for people.
    pub selector: String,
    /// The XPath, with which a submission may select an SSO provider.
    pub xpath: String,
    /// The second factor that the choice selects.
    pub mfa: Option<MfaKind>,
    /// The masked target of a code.
    pub target: Option<String>,
    /// The SSO provider, as `google`.
    pub provider: Option<String>,
}

impl RequestedField {
    /// Returns the field of a page. `rejected`: the site refused the value that was sent.
    #[must_use]
    pub fn of(field: &Field, rejected: bool) -> Self {
        Self {
            rejected,
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
            // The options of a longer list are not complete.
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
