//! Errors of single fields, collected so that one answer names all of them.

use std::fmt;

/// Why a field was refused; the closed list of `details[].code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldCode {
    /// A field that must be given is absent.
    Required,
    /// The value is of another JSON type.
    InvalidType,
    /// The text has another form.
    InvalidFormat,
    /// The number lies outside its bounds.
    OutOfRange,
    /// The text is too short.
    TooShort,
    /// The text is too long.
    TooLong,
    /// The list or map has too many members.
    TooMany,
    /// The value is not one of those allowed.
    NotAllowed,
    /// Two fields that exclude one another were given.
    MutuallyExclusive,
    /// A policy, path or address that is never allowed.
    Blocked,
    /// The resource that the field names does not exist.
    ReferenceNotFound,
    /// Several resources bear the name.
    Ambiguous,
    /// The path is not a directory.
    NotADirectory,
    /// The path is a directory.
    IsADirectory,
}

impl FieldCode {
    /// The code as it stands on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::InvalidType => "invalid_type",
            Self::InvalidFormat => "invalid_format",
            Self::OutOfRange => "out_of_range",
            Self::TooShort => "too_short",
            Self::TooLong => "too_long",
            Self::TooMany => "too_many",
            Self::NotAllowed => "not_allowed",
            Self::MutuallyExclusive => "mutually_exclusive",
            Self::Blocked => "blocked",
            Self::ReferenceNotFound => "reference_not_found",
            Self::Ambiguous => "ambiguous",
            Self::NotADirectory => "not_a_directory",
            Self::IsADirectory => "is_a_directory",
        }
    }
}

/// A value was refused; the field it stood in is not known yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidValue {
    /// Why.
    pub code: FieldCode,
    /// For people, without the field's name: "must be from 10 to 259200".
    pub message: String,
    /// Path below the field, when the field has members: `width` of `viewport`.
    pub below: Option<String>,
    /// What else was refused of the same value.
    also: Vec<InvalidValue>,
}

impl InvalidValue {
    /// A refusal of the value itself.
    pub fn new(code: FieldCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), below: None, also: Vec::new() }
    }

    /// The same refusal, of a member of the value.
    #[must_use]
    pub fn of(mut self, member: impl fmt::Display) -> Self {
        self.below = Some(match self.below {
            Some(deeper) => format!("{member}.{deeper}"),
            None => member.to_string(),
        });
        self
    }

    /// Nothing, or all the refusals of one value as one.
    ///
    /// # Errors
    /// If there is any.
    pub fn any(refusals: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut refusals = refusals.into_iter();
        match refusals.next() {
            Some(first) => Err(Self { also: refusals.collect(), ..first }),
            None => Ok(()),
        }
    }

    /// The refusals, in the field `name`.
    #[must_use]
    pub fn in_field(mut self, name: &str) -> Vec<FieldError> {
        let also = std::mem::take(&mut self.also);
        std::iter::once(self.at(name)).chain(also.into_iter().flat_map(|bad| bad.in_field(name))).collect()
    }

    /// The first of the refusals, in the field `name`.
    #[must_use]
    pub fn at(self, name: &str) -> FieldError {
        let field = match self.below {
            Some(below) => format!("{name}.{below}"),
            None => name.to_owned(),
        };
        FieldError { field, code: self.code, message: self.message }
    }
}

/// One field of a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Path of the field, `viewport.width`; `body` for the whole.
    pub field: String,
    /// Why.
    pub code: FieldCode,
    /// For people, without the field's name.
    pub message: String,
}

/// A request was refused because of its fields; at least one.
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
    /// One refused field.
    #[must_use]
    pub fn one(error: FieldError) -> Self {
        Self(vec![error])
    }

    /// All refusals of one field.
    #[must_use]
    pub fn of(name: &str, bad: InvalidValue) -> Self {
        Self(bad.in_field(name))
    }

    /// The refused fields, in the order in which they were looked at.
    #[must_use]
    pub fn fields(&self) -> &[FieldError] {
        &self.0
    }
}

/// Collects the refusals of one request.
#[derive(Debug, Default)]
pub struct Fields(Vec<FieldError>);

impl Fields {
    /// Nothing refused yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value, or `None` after its refusal was noted under `name`.
    pub fn take<T>(&mut self, name: &str, value: Result<T, InvalidValue>) -> Option<T> {
        value.map_err(|bad| self.refuse(name, bad)).ok()
    }

    /// As [`take`](Self::take), for a field that may be absent: the outer `None` means refused.
    pub fn take_optional<T, V>(
        &mut self,
        name: &str,
        value: Option<V>,
        parse: impl FnOnce(V) -> Result<T, InvalidValue>,
    ) -> Option<T> {
        self.take(name, parse(value?))
    }

    /// As [`take`](Self::take), for a field that must be given.
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

    /// Notes a refusal.
    pub fn refuse(&mut self, name: &str, bad: InvalidValue) {
        self.0.extend(bad.in_field(name));
    }

    /// # Errors
    /// [`InvalidInput`] if anything was refused.
    pub fn finish(self) -> Result<(), InvalidInput> {
        if self.0.is_empty() { Ok(()) } else { Err(InvalidInput(self.0)) }
    }
}

/// A number within its bounds, both included.
///
/// # Errors
/// `out_of_range`, with the bounds.
pub fn within(value: i64, low: u32, high: u32) -> Result<u32, InvalidValue> {
    u32::try_from(value)
        .ok()
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| InvalidValue::new(FieldCode::OutOfRange, format!("must be from {low} to {high}")))
}
