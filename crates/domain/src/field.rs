//! Errors of single fields, collected so that one response reports all of them.

use std::fmt;

use crate::pattern::plain;
use crate::text_enum::text_enum;

text_enum! {
    /// The reason why a field was refused: the closed list of values of `details[].code`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FieldCode {
        /// A required field is absent.
        Required => "required",
        /// The value has the wrong JSON type.
        InvalidType => "invalid_type",
        /// The text does not have the required form.
        InvalidFormat => "invalid_format",
        /// The number lies outside its bounds.
        OutOfRange => "out_of_range",
        /// The text is too short.
        TooShort => "too_short",
        /// The text is too long.
        TooLong => "too_long",
        /// The list or map has too many members.
        TooMany => "too_many",
        /// The value is not one of those allowed.
        NotAllowed => "not_allowed",
        /// Two fields that exclude each other are present.
        MutuallyExclusive => "mutually_exclusive",
        /// The policy, path or address is never allowed.
        Blocked => "blocked",
        /// The resource that the field names does not exist.
        ReferenceNotFound => "reference_not_found",
        /// Several resources have the name.
        Ambiguous => "ambiguous",
        /// The policy of the key does not allow the use of the resource that the field names.
        InsufficientScope => "insufficient_scope",
        /// The path is not a directory.
        NotADirectory => "not_a_directory",
        /// The path is a directory.
        IsADirectory => "is_a_directory",
    }
}

/// The refusal of a value whose field is not known yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidValue {
    /// The reason.
    pub code: FieldCode,
    /// The message for people, without the name of the field: "must be from 10 to 259200".
    pub message: String,
    /// The path below the field, if the field has members: `width` of `viewport`.
    pub below: Option<String>,
    /// Further refusals of the same value.
    others: Vec<InvalidValue>,
}

impl InvalidValue {
    /// Creates a refusal of the value itself.
    pub fn new(code: FieldCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), below: None, others: Vec::new() }
    }

    /// Returns the same refusals for a member of the value.
    #[must_use]
    pub fn of(mut self, member: impl fmt::Display) -> Self {
        let member = member.to_string();
        self.others = self.others.into_iter().map(|other| other.of(&member)).collect();
        self.below = Some(match self.below {
            Some(deeper) => format!("{member}.{deeper}"),
            None => member,
        });
        self
    }

    /// Combines all refusals of one value.
    ///
    /// # Errors
    /// Returns the combined refusal if there is any.
    pub fn any(refusals: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut refusals = refusals.into_iter();
        match refusals.next() {
            Some(mut first) => {
                first.others.extend(refusals);
                Err(first)
            }
            None => Ok(()),
        }
    }

    /// Returns the refusals as errors of the field `name`.
    #[must_use]
    pub fn in_field(mut self, name: &str) -> Vec<FieldError> {
        let others = std::mem::take(&mut self.others);
        std::iter::once(self.at(name)).chain(others.into_iter().flat_map(|bad| bad.in_field(name))).collect()
    }

    /// Returns the first refusal as an error of the field `name`.
    #[must_use]
    pub fn at(self, name: &str) -> FieldError {
        let field = match self.below {
            Some(below) => format!("{name}.{below}"),
            None => name.to_owned(),
        };
        FieldError { field, code: self.code, message: self.message }
    }
}

/// The refusal of one field of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// The path of the field, as in `viewport.width`; `body` for the whole request.
    pub field: String,
    /// The reason.
    pub code: FieldCode,
    /// The message for people, without the name of the field.
    pub message: String,
}

/// The refusal of a request because of at least one of its fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", summary(.0))]
pub struct InvalidInput(Vec<FieldError>);

fn summary(errors: &[FieldError]) -> String {
    match errors {
        [only] => only.to_string(),
        many => format!("{} fields are not valid", many.len()),
    }
}

impl InvalidInput {
    /// Creates the refusal of one field.
    #[must_use]
    pub fn one(error: FieldError) -> Self {
        Self(vec![error])
    }

    /// Returns the error of the first field that the policy of the key does not allow.
    #[must_use]
    pub fn insufficient_scope(&self) -> Option<&FieldError> {
        self.0.iter().find(|field| field.code == FieldCode::InsufficientScope)
    }

    /// Creates the refusal of one field, with all its errors.
    #[must_use]
    pub fn of(name: &str, bad: InvalidValue) -> Self {
        Self(bad.in_field(name))
    }

    /// Returns the refused fields, in the order in which they were checked.
    #[must_use]
    pub fn fields(&self) -> &[FieldError] {
        &self.0
    }
}

/// A collector of the refusals of one request.
#[derive(Debug, Default)]
pub struct Fields(Vec<FieldError>);

impl Fields {
    /// Creates an empty collector.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the value, or adds its refusal under `name` and returns `None`.
    pub fn take<T>(&mut self, name: &str, value: Result<T, InvalidValue>) -> Option<T> {
        value.map_err(|bad| self.refuse(name, bad)).ok()
    }

    /// Like [`take`](Self::take), for a field that may be absent.
    pub fn take_optional<T, V>(
        &mut self,
        name: &str,
        value: Option<V>,
        parse: impl FnOnce(V) -> Result<T, InvalidValue>,
    ) -> Option<T> {
        self.take(name, parse(value?))
    }

    /// Like [`take`](Self::take), for a required field.
    pub fn take_required<T, V>(
        &mut self,
        name: &str,
        value: Option<V>,
        parse: impl FnOnce(V) -> Result<T, InvalidValue>,
    ) -> Option<T> {
        match value {
            Some(value) => self.take(name, parse(value)),
            None => self.take(name, Err(InvalidValue::new(FieldCode::Required, "is required"))),
        }
    }

    /// Adds a refusal.
    pub fn refuse(&mut self, name: &str, bad: InvalidValue) {
        self.0.extend(bad.in_field(name));
    }

    /// Returns the value that `build` makes of the accepted fields. It may return `None` only if a field was refused.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] if anything was refused.
    pub fn finish_with<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, InvalidInput> {
        self.finish()?;
        Ok(build().unwrap_or_else(|| unreachable!("a field that is missing was refused")))
    }

    /// # Errors
    /// Returns [`InvalidInput`] if anything was refused.
    pub fn finish(self) -> Result<(), InvalidInput> {
        if self.0.is_empty() { Ok(()) } else { Err(InvalidInput(self.0)) }
    }
}

/// Returns the checked value of a request's only field.
///
/// # Errors
/// Returns the refusal under `name`: `required` if the field is absent, or the error of `parse`.
pub fn required<T, V>(
    name: &str,
    value: Option<V>,
    parse: impl FnOnce(V) -> Result<T, InvalidValue>,
) -> Result<T, InvalidInput> {
    let mut fields = Fields::new();
    let value = fields.take_required(name, value, parse);
    fields.finish_with(|| value)
}

/// Checks that a text has at most `max` characters.
///
/// # Errors
/// Returns `too_long`.
pub fn check_max_length(text: &str, max: usize) -> Result<(), InvalidValue> {
    match text.chars().nth(max) {
        None => Ok(()),
        Some(_) => Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {max} characters"))),
    }
}

/// Checks that a text has 1 to `max` characters.
///
/// # Errors
/// Returns `too_short` or `too_long`.
pub fn check_length(text: &str, max: usize) -> Result<(), InvalidValue> {
    if text.is_empty() {
        return Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 character"));
    }
    check_max_length(text, max)
}

/// Checks that a text has at most `max` bytes.
///
/// # Errors
/// Returns `too_long`.
pub fn check_max_bytes(text: &str, max: usize) -> Result<(), InvalidValue> {
    if text.len() > max {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {max} bytes")));
    }
    Ok(())
}

/// The pattern of texts without control characters.
pub const PLAIN_PATTERN: &str = concat!("^", plain!(""), "*$");

/// Checks that a text has no control characters.
///
/// # Errors
/// Returns `invalid_format`.
pub fn check_no_control_characters(text: &str) -> Result<(), InvalidValue> {
    if text.chars().any(char::is_control) {
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold control characters"));
    }
    Ok(())
}

/// Returns the value whose text is `text`, from the closed list `all`.
///
/// # Errors
/// Returns `not_allowed`, with the list.
pub fn one_of<T: Copy>(text: &str, all: &[T], text_of: fn(T) -> &'static str) -> Result<T, InvalidValue> {
    all.iter().copied().find(|one| text_of(*one) == text).ok_or_else(|| {
        let words: Vec<_> = all.iter().map(|one| text_of(*one)).collect();
        InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {}", words.join(", ")))
    })
}

/// Returns the number if it lies from `low` to `high`, both included.
///
/// # Errors
/// Returns `out_of_range`, with the bounds.
pub fn within(value: i64, low: u32, high: u32) -> Result<u32, InvalidValue> {
    u32::try_from(value)
        .ok()
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| InvalidValue::new(FieldCode::OutOfRange, format!("must be from {low} to {high}")))
}
