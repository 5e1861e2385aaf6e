//! Strict JSON of requests: no duplicate keys, bounded nesting, a bounded number of values, and no conversion between
//! types.

mod strict;
mod unique_keys;

use casement_domain::field::FieldCode;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};

use self::strict::{InvalidField, Reading, Strict};
use crate::{
    error::{ApiError, Code},
    ignored_fields::IgnoredFields,
    restricting::Restrictions,
};

/// A check of all fields of a body.
type Check<'c> = &'c dyn Fn(&Map<String, Value>) -> Result<(), ApiError>;

/// Reads the body as `T`.
///
/// # Errors
/// `bad_request` if the body is not JSON or has a duplicate key; `invalid_input` with the field for another type.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    Ok(read_with_ignored(body, &|_| Ok(()), Restrictions::default())?.0)
}

/// Reads as [`read`] does, and also returns the fields that `T` does not have. `check` sees all fields before.
///
/// # Errors
/// As [`read`], and the error of `check`; `invalid_input` with an unknown field that `restrictions` refuse.
pub(crate) fn read_with_ignored<T: DeserializeOwned>(
    body: &[u8],
    check: Check<'_>,
    restrictions: Restrictions,
) -> Result<(T, IgnoredFields), ApiError> {
    let reading = Reading::new(restrictions);
    match T::deserialize(Strict::new(object(body, check)?, &reading)) {
        Ok(read) => Ok((read, reading.ignored())),
        Err(error) => Err(reading.refusal(error)),
    }
}

/// Returns the value of a body, which is an object; no body means the same as `{}`.
fn object(body: &[u8], check: Check<'_>) -> Result<Value, ApiError> {
    let value = if body.is_empty() { Value::Object(Map::new()) } else { parse(body)? };
    match value.as_object() {
        Some(fields) => check(fields)?,
        None => return Err(ApiError::field("body", FieldCode::InvalidType, "must be an object")),
    }
    Ok(value)
}

/// Reads JSON text that is the value of the form field `field`.
///
/// # Errors
/// `invalid_input`: `invalid_format` if the text is not JSON or has a duplicate key.
pub(crate) fn text<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, ApiError> {
    // The parser's message is not repeated, because the text may hold a secret.
    let refused = |_| ApiError::field(field, FieldCode::InvalidFormat, "must be JSON text without a key twice");
    let value = unique_keys::value(&mut serde_json::Deserializer::from_str(text)).map_err(refused)?;
    let reading = Reading::default();
    T::deserialize(Strict::new(value, &reading)).map_err(|error| reading.refusal_of_field(field, error))
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
    unique_keys::value(&mut serde_json::Deserializer::from_slice(body)).map_err(refused)
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

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{unique_keys::MAX_DEPTH, *};

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

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Closed {
        on: Option<bool>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Lists {
        sizes: Vec<Size>,
        rows: Vec<Vec<i64>>,
        closed: Option<Closed>,
        by_name: std::collections::BTreeMap<String, Size>,
    }

    #[test]
    fn the_path_of_a_refused_value_has_its_indices_and_keys() {
        for (body, path) in [
            (r#"{"sizes": [{}, {"width": true}]}"#, "sizes[1].width: must be an integer"),
            (r#"{"rows": [[1], [2, "3"]]}"#, "rows[1][1]: must be an integer"),
            (r#"{"by_name": {"a b": {"width": ""}}}"#, "by_name.a b.width: must be an integer"),
            (r#"{"closed": {"on": 1}}"#, "closed.on: must be true or false"),
            (r#"{"closed": {"off": 1}}"#, "closed.off: unknown field `off`, expected `on`"),
        ] {
            assert_eq!(read::<Lists>(body.as_bytes()).expect_err(body).chain(), path);
        }
        let refused = text::<Vec<Size>>("sizes", r#"[{"width": []}]"#).expect_err("no number");
        assert_eq!(refused.chain(), "sizes.[0].width: must be an integer");
    }

    #[test]
    fn ignored_fields_are_named_with_their_parents() {
        let body = br#"{"new": {"a": [1]}, "sizes": [{}, {"depth": 1}], "by_name": {"x": {"y": null}}}"#;
        let (_, ignored) = read_with_ignored::<Lists>(body, &|_| Ok(()), Restrictions::default()).expect("accepted");
        assert_eq!(ignored.paths(), ["by_name.x.y", "new", "sizes.1.depth"]);
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
