//! Strict JSON of requests: no duplicate keys, bounded nesting, a bounded number of values, and no conversion between
//! types.

use std::{borrow::Cow, cell::Cell, fmt};

use casement_domain::field::FieldCode;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
        Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Map, Number, Value};

use crate::{
    error::{ApiError, Code},
    ignored_fields::IgnoredFields,
};

/// The maximum nesting of arrays and objects in a body.
const MAX_DEPTH: usize = 64;
/// The maximum number of values of a body, including arrays and objects: each takes many times the memory of its text.
const MAX_VALUES: usize = 50_000;

/// Reads the body as `T`.
///
/// # Errors
/// `bad_request` if the body is not JSON or has a duplicate key; `invalid_input` with the field for another type.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    Ok(read_with_ignored(body, |_| Ok(()))?.0)
}

/// Reads as [`read`] does, and also returns the fields that `T` does not have. `check` sees all fields before.
///
/// # Errors
/// As [`read`], and the error of `check`.
pub(crate) fn read_with_ignored<T: DeserializeOwned>(
    body: &[u8],
    check: impl FnOnce(&Map<String, Value>) -> Result<(), ApiError>,
) -> Result<(T, IgnoredFields), ApiError> {
    let mut ignored = IgnoredFields::default();
    let value = if body.is_empty() { Value::Object(Map::new()) } else { parse(body)? };
    match value.as_object() {
        Some(fields) => check(fields)?,
        None => return Err(ApiError::field("body", FieldCode::InvalidType, "must be an object")),
    }
    let mut note = |path: serde_ignored::Path<'_>| ignored.add(&path);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(Strict(value), &mut track);
    let read = T::deserialize(serde_ignored::Deserializer::new(tracked, &mut note));
    let read = read.map_err(|error| match track.path().to_string() {
        // A missing field of the body itself has no parent path.
        root if root == "." && error.field.is_some() => error.at(None),
        root if root == "." => error.at(Some("body")),
        path => error.at(Some(&path)),
    })?;
    Ok((read, ignored))
}

/// Reads JSON text that is the value of the form field `field`.
///
/// # Errors
/// `invalid_input`: `invalid_format` if the text is not JSON or has a duplicate key.
pub(crate) fn text<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let parsed =
        UniqueKeys::root(&Cell::new(0)).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    // The parser's message is not repeated, because the text may hold a secret.
    let refused = |_| ApiError::field(field, FieldCode::InvalidFormat, "must be JSON text without a key twice");
    serde_path_to_error::deserialize(Strict(parsed.map_err(refused)?)).map_err(|error| {
        let path = match error.path().to_string() {
            root if root == "." => field.to_owned(),
            path => format!("{field}.{path}"),
        };
        error.into_inner().at(Some(&path))
    })
}

/// Sorts the field errors of a `T` in the order of its fields.
pub(crate) fn in_order<T: DeserializeOwned>(error: ApiError) -> ApiError {
    let mut fields: &[&str] = &[];
    // The deserializer holds no value, so the result is an error.
    let _ = T::deserialize(FieldNames(&mut fields));
    error.in_order_of(fields)
}

/// Deserializes a field whose null differs from its absence: `Some(None)` for null. An absent field needs `default`.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    let refused = |error: serde_json::Error| ApiError::new(Code::BadRequest, format!("the body is not JSON: {error}"));
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = UniqueKeys::root(&Cell::new(0)).deserialize(&mut reader).map_err(refused)?;
    reader.end().map_err(refused)?;
    Ok(value)
}

/// Reads any value without duplicate keys, within the bounds.
struct UniqueKeys<'a> {
    depth: usize,
    /// The number of values read so far.
    values: &'a Cell<usize>,
}

impl<'a> UniqueKeys<'a> {
    fn root(values: &'a Cell<usize>) -> Self {
        Self { depth: 0, values }
    }

    fn nested<E: serde::de::Error>(&self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format_args!("nested deeper than {MAX_DEPTH}")));
        }
        Ok(Self { depth: self.depth + 1, values: self.values })
    }

    fn count<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.values.get() == MAX_VALUES {
            return Err(E::custom(format_args!("holds more than {MAX_VALUES} values")));
        }
        self.values.set(self.values.get() + 1);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.nested()?)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                let shown: String = key.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("the key {shown:?} stands twice in one object")));
            }
            let value = entries.next_value_seed(self.nested()?)?;
            map.insert(key, value);
        }
        Ok(map.into())
    }
}

/// A field has an invalid type or value, or is missing.
#[derive(Debug)]
struct InvalidField {
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

/// Captures the names of a struct's fields, in their order, and holds no value.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = InvalidField;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, InvalidField> {
        Err(InvalidField::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any option newtype_struct enum
    }
}

/// A value that deserializes without conversion. The deserializer of `serde_json` would also read an array as a struct.
struct Strict(Value);

impl Strict {
    fn refuse<T>(&self, expected: &dyn Expected) -> Result<T, InvalidField> {
        Err(InvalidField::invalid_type(Unexpected::Other("another type"), expected))
    }
}

impl<'de> IntoDeserializer<'de, InvalidField> for Strict {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Returns a number without a fraction, such as `3.0`, as an integer. JSON has one type of numbers.
fn whole(value: f64) -> Option<i64> {
    if value.fract() == 0.0 { format!("{value}").parse().ok() } else { None }
}

impl<'de> Deserializer<'de> for Strict {
    type Error = InvalidField;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        match self.0 {
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
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Strict))),
            Value::Object(map) => {
                visitor.visit_map(MapDeserializer::new(map.into_iter().map(|(key, value)| (key, Strict(value)))))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        if self.0.is_object() { self.deserialize_any(visitor) } else { self.refuse(&"a map") }
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
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.into_deserializer()),
            _ => self.refuse(&"a string"),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Size {
        width: Option<i64>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Body {
        size: Option<Size>,
        on: Option<bool>,
        name: Option<String>,
        any: Option<Map<String, Value>>,
    }

    fn refusal(body: &str) -> String {
        read::<Body>(body.as_bytes()).map(|body| format!("{body:?}")).unwrap_err().chain()
    }

    #[test]
    fn absent_null_and_unknown_fields_are_fine() {
        for body in ["", "{}", " {\"size\": null, \"on\": null}", r#"{"new": [1, {"a": 2}]}"#] {
            assert_eq!(read::<Body>(body.as_bytes()).expect(body), Body::default());
        }
        let nested = read::<Body>(br#"{"any": {"a": [1, 2.5, {"b": null}]}, "size": {"width": 3}}"#).expect("fine");
        assert_eq!(nested.size, Some(Size { width: Some(3) }));
        let whole = read::<Body>(br#"{"size": {"width": -3.0}}"#).expect("an integer, as JSON Schema has it");
        assert_eq!(whole.size, Some(Size { width: Some(-3) }));
        assert_eq!(Value::Object(nested.any.expect("given")).to_string(), r#"{"a":[1,2.5,{"b":null}]}"#);
    }

    #[test]
    fn another_type_is_refused_with_the_path_of_the_field() {
        for (body, message) in [
            (r#"{"size": {"width": "1"}}"#, "size.width: must be an integer"),
            (r#"{"size": {"width": 1.5}}"#, "size.width: must be an integer"),
            (r#"{"size": {"width": 18446744073709551615}}"#, "size.width: must fit into 64 bits"),
            (r#"{"size": {"width": 1e99}}"#, "size.width: must be an integer"),
            (r#"{"size": [1]}"#, "size: must be an object"),
            (r#"{"on": "true"}"#, "on: must be true or false"),
            (r#"{"name": 5}"#, "name: must be a string"),
            (r#"{"any": []}"#, "any: must be an object"),
            ("[true]", "body: must be an object"),
            ("null", "body: must be an object"),
        ] {
            assert_eq!(refusal(body), message, "{body}");
        }
    }

    #[test]
    fn malformed_json_and_duplicate_keys_are_refused() {
        for body in [r#"{"on": tr"#, r#"{"on": true"#, "{} {}", r#"{"on": true, "on": true}"#, "{'on': true}", "\u{0}"]
        {
            assert_eq!(read::<Body>(body.as_bytes()).expect_err(body).code(), Code::BadRequest, "{body}");
        }
        let deep_twice = r#"{"any": {"a": [{"b": 1, "b": 1}]}}"#;
        assert!(refusal(deep_twice).contains("the key \"b\" stands twice"));
        assert_eq!(read::<Body>(b"{\"name\": \"\xff\"}").expect_err("UTF-8").code(), Code::BadRequest);
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{{\"new\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(read::<Body>(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
        assert_eq!(read::<Body>(nested(MAX_DEPTH + 1).as_bytes()).expect_err("deep").code(), Code::BadRequest);
        assert_eq!(read::<Body>(nested(100_000).as_bytes()).expect_err("deeper").code(), Code::BadRequest);
    }
}
