//! Submissions to a waiting flow, and their checks.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

use super::{Flow, RequestedChoice, RequestedField};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue};
use crate::login_page::ChoiceKind;

/// The maximum number of values of a submission.
pub const MAX_VALUES: usize = 50;
/// The maximum number of bytes of a value.
pub const MAX_VALUE_BYTES: usize = 8 * 1024;
/// The maximum number of characters of a name that an error repeats.
const MAX_SHOWN_CHARACTERS: usize = 128;

/// The unchecked fields of a submission.
#[derive(Default)]
pub struct SubmitRequest {
    /// The id of what the flow asks for, as [`Flow::interaction_id`] returned it; `None`: not checked.
    pub interaction_id: Option<String>,
    /// Values by the id of the field.
    pub field_values: Option<BTreeMap<String, SecretString>>,
    /// Values by the name of the field.
    pub fields: Option<BTreeMap<String, SecretString>>,
    /// The id of a choice.
    pub selected_choice_id: Option<String>,
    /// The kind of second factor of a choice.
    pub mfa_option_id: Option<String>,
    /// The id of a choice.
    pub sign_in_option_id: Option<String>,
    /// The provider of a choice.
    pub sso_provider: Option<String>,
    /// The XPath of a choice.
    pub sso_button_selector: Option<String>,
}

impl fmt::Debug for SubmitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitRequest").field("choice", &self.selected_choice_id).finish_non_exhaustive()
    }
}

/// Values and a choice, checked against the fields and choices that the flow waits for.
pub struct Submission {
    /// Values by the id of the field.
    pub values: BTreeMap<String, SecretString>,
    /// The id of the choice.
    pub choice: Option<String>,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl SubmitRequest {
    /// # Errors
    /// Returns the fields that the flow does not wait for, that are missing, or that exclude each other.
    pub(super) fn parse(self, flow: &Flow) -> Result<Submission, InvalidInput> {
        if self.interaction_id.is_some() && self.interaction_id != flow.interaction_id() {
            let stale = "is not the id of the current question of the login; read the auth connection again";
            return Err(InvalidInput::of("interaction_id", InvalidValue::new(FieldCode::NotAllowed, stale)));
        }
        let mut refused = Fields::new();
        if self.field_values.is_some() && self.fields.is_some() {
            refused.refuse(
                "fields",
                InvalidValue::new(FieldCode::MutuallyExclusive, "cannot be combined with field_values"),
            );
        }
        let (at, by_id) = if self.fields.is_some() { ("fields", false) } else { ("field_values", true) };
        let chooses = self.selections().next().is_some();
        let choice = self.choice(flow, &mut refused);
        let given = self.field_values.or(self.fields);
        if given.is_none() && !chooses {
            refused.refuse("body", InvalidValue::new(FieldCode::Required, "needs values or a choice"));
        }
        let values = match given {
            Some(given) => refused.take(at, values(given, flow, by_id, chooses)).unwrap_or_default(),
            None => BTreeMap::new(),
        };
        refused.finish()?;
        Ok(Submission { values, choice })
    }

    /// Returns the selections, each with the function that matches it to a choice.
    fn selections(&self) -> impl Iterator<Item = (&'static str, &str, ChoiceMatcher)> {
        let given: [(_, &Option<String>, ChoiceMatcher); 5] = [
            ("selected_choice_id", &self.selected_choice_id, |choice, text| choice.id == text),
            ("mfa_option_id", &self.mfa_option_id, |choice, text| choice.mfa.is_some_and(|mfa| mfa.as_str() == text)),
            ("sign_in_option_id", &self.sign_in_option_id, |choice, text| choice.id == text),
            ("sso_provider", &self.sso_provider, |choice, text| {
                choice.kind == ChoiceKind::SsoProvider
                    && choice.provider.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(text))
            }),
            ("sso_button_selector", &self.sso_button_selector, |choice, text| {
                choice.kind == ChoiceKind::SsoProvider && choice.xpath == text
            }),
        ];
        given.into_iter().filter_map(|(name, text, meant)| Some((name, text.as_deref()?, meant)))
    }

    /// Returns the id of the selected choice.
    fn choice(&self, flow: &Flow, refused: &mut Fields) -> Option<String> {
        let mut found = None;
        for (at, (name, text, meant)) in self.selections().enumerate() {
            if at > 0 {
                refused.refuse(
                    name,
                    InvalidValue::new(FieldCode::MutuallyExclusive, "is a second selection; only one is taken"),
                );
                continue;
            }
            found = flow.choices.iter().find(|choice| meant(choice, text)).map(|choice| choice.id.clone());
            if found.is_none() {
                refused.refuse(name, InvalidValue::new(FieldCode::NotAllowed, "is not one of the requested fields"));
            }
        }
        found
    }
}

/// A function that returns whether a choice matches a text.
type ChoiceMatcher = fn(&RequestedChoice, &str) -> bool;

fn values(
    given: BTreeMap<String, SecretString>,
    flow: &Flow,
    by_id: bool,
    with_choice: bool,
) -> Result<BTreeMap<String, SecretString>, InvalidValue> {
    if given.len() > MAX_VALUES {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must be at most {MAX_VALUES}")));
    }
    let mut bad = Vec::new();
    let mut values = BTreeMap::new();
    for (key, value) in given {
        let field = flow.fields.iter().find(|field| if by_id { field.id == key } else { field.name == key });
        let shown: String = key.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARACTERS).collect();
        let Some(field) = field else {
            bad.push(InvalidValue::new(FieldCode::NotAllowed, "is not waited for").of(shown));
            continue;
        };
        if value.expose_secret().len() > MAX_VALUE_BYTES {
            bad.push(
                InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_VALUE_BYTES} bytes")).of(shown),
            );
        } else if !value.expose_secret().is_empty() && !takes(field, value.expose_secret()) {
            bad.push(InvalidValue::new(FieldCode::NotAllowed, "is none of the options").of(shown));
        } else if !value.expose_secret().is_empty() {
            values.insert(field.id.clone(), value);
        }
    }
    if !with_choice && bad.is_empty() {
        let missing = flow.fields.iter().filter(|field| field.required && !values.contains_key(&field.id));
        bad.extend(missing.map(|field| {
            InvalidValue::new(FieldCode::Required, "is required").of(if by_id { &field.id } else { &field.name })
        }));
        if bad.is_empty() && values.is_empty() {
            bad.push(InvalidValue::new(FieldCode::Required, "needs at least one value"));
        }
    }
    InvalidValue::any(bad)?;
    Ok(values)
}

/// Returns whether the value is allowed for the field.
fn takes(field: &RequestedField, value: &str) -> bool {
    field.options.is_empty() || field.options.iter().any(|option| option == value)
}

/// Returns the key in `keys` that holds the value of a field: the field's own name, else a synonym.
pub(super) fn value_key<'k>(keys: &'k [String], name: &str) -> Option<&'k String> {
    const SAME: [&[&str]; 2] = [
        &["username", "email", "identifier", "user", "login", "user_name", "user_id", "phone"],
        &["password", "passwd", "pass", "pwd"],
    ];
    let of = |wanted: &str| keys.iter().find(|key| key.eq_ignore_ascii_case(wanted));
    of(name).or_else(|| {
        let group = SAME.iter().find(|group| group.iter().any(|one| one.eq_ignore_ascii_case(name)))?;
        group.iter().find_map(|one| of(one))
    })
}
