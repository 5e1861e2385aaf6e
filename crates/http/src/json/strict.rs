//! Reads a parsed value as a type, without conversion, and notes where the first error is and which fields are ignored.
//!
//! It is one concrete deserializer, because the code that reads a body is generated for each type of a body.

use std::{borrow::Cow, cell::RefCell, fmt, vec};

use casement_domain::field::FieldCode;
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, Expected, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Value, map};

use crate::{error::ApiError, ignored_fields::IgnoredFields, restricting::Restrictions};

/// A field has an invalid type or value, or is missing.
#[derive(Debug)]
pub(super) struct InvalidField {
    /// The name of a missing field, because the path ends at its parent.
    field: Option<&'static str>,
    code: FieldCode,
    message: String,
}

impl InvalidField {
    fn new(code: FieldCode, message: impl Into<String>) -> Self {
        Self { field: None, code, message: message.into() }
    }

    /// Returns the response error for a field whose parent is at `path`, or which is at `path` itself.
    fn at(self, path: Option<&str>) -> ApiError {
        let parts: Vec<&str> = path.into_iter().chain(self.field).collect();
        ApiError::field(&parts.join("."), self.code, self.message)
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InvalidField {}

impl serde::de::Error for InvalidField {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(FieldCode::InvalidFormat, message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let type_name: Cow<'_, str> = match expected.to_string().as_str() {
            "i64" | "u64" | "u32" | "i32" | "u16" => "an integer".into(),
            "a boolean" => "true or false".into(),
            "a string" => "a string".into(),
            "a sequence" => "an array".into(),
            text if text == "a map" || text.starts_with("struct ") => "an object".into(),
            other => other.to_owned().into(),
        };
        Self::new(FieldCode::InvalidType, format!("must be {type_name}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match expected.to_string().as_str() {
            "i64" => Self::new(FieldCode::OutOfRange, "must fit into 64 bits"),
            other => Self::new(FieldCode::InvalidFormat, format!("must be {other}")),
        }
    }

    fn unknown_variant(_: &str, variants: &'static [&'static str]) -> Self {
        Self::new(FieldCode::NotAllowed, format!("must be one of {}", variants.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self { field: Some(field), ..Self::new(FieldCode::Required, "is required") }
    }
}

/// Where a value is in the body.
enum Place<'p> {
    Body,
    Field(&'p Place<'p>, &'p str),
    Item(&'p Place<'p>, usize),
}

impl Place<'_> {
    /// Returns the path of an invalid field: `extensions[0].id`.
    fn of_error(&self) -> String {
        self.path(|path, index| path.push_str(&format!("[{index}]")))
    }

    /// Returns the path of the objects of one kind: `extensions[]`.
    fn of_kind(&self) -> String {
        self.path(|path, _| path.push_str("[]"))
    }

    /// Returns the path of an ignored field: `extensions.0.id`.
    fn of_ignored(&self) -> String {
        self.path(|path, index| path.push_str(&format!(".{index}")))
    }

    fn path(&self, item: fn(&mut String, usize)) -> String {
        match self {
            Self::Body => String::new(),
            Self::Field(Self::Body, name) => (*name).to_owned(),
            Self::Field(parent, name) => format!("{}.{name}", parent.path(item)),
            Self::Item(parent, index) => {
                let mut path = parent.path(item);
                item(&mut path, *index);
                path
            }
        }
    }
}

/// What is noted while a body is read.
#[derive(Default)]
pub(super) struct Reading {
    /// The path of the first error; `None` if it is not below the body.
    failed_at: RefCell<Option<String>>,
    ignored: RefCell<IgnoredFields>,
    /// Which unknown fields are refused.
    restrictions: Restrictions,
}

impl Reading {
    /// Returns the notes about a body whose unknown fields are refused as `restrictions` say.
    pub(super) fn new(restrictions: Restrictions) -> Self {
        Self { restrictions, ..Self::default() }
    }

    /// Notes a field that the type does not have.
    fn unknown(&self, place: &Place<'_>, value: &Value) -> Result<(), InvalidField> {
        if let Place::Field(parent, name) = place
            && !value.is_null()
            && let Some(refusal) = self.restrictions.refusal(&parent.of_kind(), name)
        {
            return Err(InvalidField::new(FieldCode::NotAllowed, refusal));
        }
        self.ignored.borrow_mut().add(|| place.of_ignored());
        Ok(())
    }

    /// Notes the place of an error. The first place is the innermost.
    fn failed(&self, place: &Place<'_>) {
        self.failed_at.borrow_mut().get_or_insert_with(|| place.of_error());
    }

    /// Returns the fields that were ignored.
    pub(super) fn ignored(self) -> IgnoredFields {
        self.ignored.into_inner()
    }

    /// Returns the refusal of a body.
    pub(super) fn refusal(self, error: InvalidField) -> ApiError {
        match self.failed_at.into_inner() {
            // A missing field of the body itself has no parent path.
            None if error.field.is_some() => error.at(None),
            None => error.at(Some("body")),
            Some(path) => error.at(Some(&path)),
        }
    }

    /// Returns the refusal of the value of a field.
    pub(super) fn refusal_of_field(self, field: &str, error: InvalidField) -> ApiError {
        match self.failed_at.into_inner() {
            None => error.at(Some(field)),
            Some(path) => error.at(Some(&format!("{field}.{path}"))),
        }
    }
}

/// A value that deserializes without conversion. The deserializer of `serde_json` would also read an array as a struct.
pub(super) struct Strict<'r> {
    value: Value,
    place: &'r Place<'r>,
    reading: &'r Reading,
}

impl<'r> Strict<'r> {
    /// Returns the deserializer of a whole body.
    pub(super) fn new(value: Value, reading: &'r Reading) -> Self {
        Self { value, place: &Place::Body, reading }
    }

    fn refuse<T>(&self, expected: &dyn Expected) -> Result<T, InvalidField> {
        Err(InvalidField::invalid_type(Unexpected::Other("another type"), expected))
    }
}

/// Returns a number without a fraction, such as `3.0`, as an integer. JSON has one type of numbers.
fn whole(value: f64) -> Option<i64> {
    if value.fract() == 0.0 { format!("{value}").parse().ok() } else { None }
}

impl<'de> Deserializer<'de> for Strict<'_> {
    type Error = InvalidField;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        let Self { value, place, reading } = self;
        match value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, value) => match value.and_then(whole) {
                    Some(value) => visitor.visit_i64(value),
                    None => visitor.visit_f64(value.unwrap_or(f64::NAN)),
                },
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => visitor.visit_seq(Items { items: items.into_iter(), next: 0, place, reading }),
            Value::Object(fields) => {
                visitor.visit_map(Fields { fields: fields.into_iter(), given: None, place, reading })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        match self.value {
            Value::Object(fields) => {
                let Self { place, reading, .. } = self;
                visitor.visit_map(Fields { fields: fields.into_iter(), given: None, place, reading })
            }
            _ => self.refuse(&"a map"),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        match self.value {
            Value::String(text) => visitor.visit_enum(text.into_deserializer()),
            _ => self.refuse(&"a string"),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        self.reading.unknown(self.place, &self.value)?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
    }
}

/// The fields of an object that are not read yet.
struct Fields<'r> {
    fields: map::IntoIter,
    /// The field whose name was read.
    given: Option<(String, Value)>,
    place: &'r Place<'r>,
    reading: &'r Reading,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = InvalidField;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, InvalidField> {
        let Some((name, value)) = self.fields.next() else { return Ok(None) };
        let key = seed.deserialize(name.as_str().into_deserializer());
        let key = key.inspect_err(|_| self.reading.failed(&Place::Field(self.place, &name)))?;
        self.given = Some((name, value));
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, InvalidField> {
        // A visitor reads a name before its value.
        let (name, value) = self.given.take().unwrap_or_default();
        let place = Place::Field(self.place, &name);
        let read = seed.deserialize(Strict { value, place: &place, reading: self.reading });
        read.inspect_err(|_| self.reading.failed(&place))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// The items of an array that are not read yet.
struct Items<'r> {
    items: vec::IntoIter<Value>,
    /// The index of the next item.
    next: usize,
    place: &'r Place<'r>,
    reading: &'r Reading,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = InvalidField;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, InvalidField> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let place = Place::Item(self.place, self.next);
        self.next += 1;
        let read = seed.deserialize(Strict { value, place: &place, reading: self.reading });
        read.map(Some).inspect_err(|_| self.reading.failed(&place))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}
