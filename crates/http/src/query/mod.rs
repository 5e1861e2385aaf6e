//! The query of a request.
//!
//! An operation declares its parameters as a struct with `#[derive(Deserialize, IntoParams)]`. [`Query::read`] reads
//! that struct, and the OpenAPI document describes it.

mod deserializer;

use std::collections::BTreeMap;

use casement_domain::field::{FieldCode, InvalidInput};
use serde::{Deserialize, de::DeserializeOwned};
use time::OffsetDateTime;

use self::deserializer::QueryDeserializer;
use crate::{
    date_time,
    error::{ApiError, Code},
    schema::IntoParams,
};

/// The page of a list.
#[derive(Deserialize, IntoParams)]
pub(crate) struct PageParams {
    /// The maximum number of items, 1 to 100. Default: 20.
    #[param(value_type = Option<u32>)]
    pub(crate) limit: Option<i64>,
    /// The number of items before the page. Default: 0.
    #[param(value_type = Option<u64>)]
    pub(crate) offset: Option<i64>,
}

/// The choice whether ended or deleted resources are found too.
#[derive(Deserialize, IntoParams)]
pub(crate) struct DeletedParams {
    /// Whether an ended or deleted resource is found too. Default: false.
    pub(crate) include_deleted: Option<bool>,
}

/// A text as it was sent. All other texts may not contain a NUL, because PostgreSQL refuses it.
#[derive(Deserialize)]
pub(crate) struct Verbatim(pub(crate) String);

/// Returns the text to filter by; `None` for an empty text.
pub(crate) fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Parses a date-time.
///
/// # Errors
/// `invalid_input`.
pub(crate) fn date_time(name: &str, text: Option<String>) -> Result<Option<OffsetDateTime>, ApiError> {
    let parsed = text.as_deref().map(date_time::parse).transpose();
    parsed.map_err(|invalid| InvalidInput::of(name, invalid).into())
}

/// Parses a date-time, or an age before `now`.
///
/// # Errors
/// `invalid_input`.
pub(crate) fn date_time_or_age(
    name: &str,
    text: Option<String>,
    now: OffsetDateTime,
) -> Result<Option<OffsetDateTime>, ApiError> {
    let parsed = text.as_deref().map(|text| date_time::parse_or_age(text, now)).transpose();
    parsed.map_err(|invalid| InvalidInput::of(name, invalid).into())
}

/// The decoded parameters of a query, in order.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a query.
    ///
    /// # Errors
    /// `bad_request` for malformed percent-encoding, or text that is not UTF-8.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(&key.replace('+', " "))?, decoded(&value.replace('+', " "))?))
        });
        Ok(Self(pairs.collect::<Result<_, ApiError>>()?))
    }

    /// Reads the parameters that the struct `T` declares: `String`, `i64`, `bool`, an enum of unit variants,
    /// [`Verbatim`] and options of these, `Vec<String>` and `BTreeMap<String, String>`. Unknown parameters are ignored.
    ///
    /// # Errors
    /// `bad_request` for a parameter that is given twice; `invalid_input` for a value of another type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        T::deserialize(QueryDeserializer(self)).map_err(|error| error.0)
    }

    /// Returns the value of a parameter as it was sent.
    ///
    /// # Errors
    /// `bad_request` if the parameter is given twice.
    pub(crate) fn raw(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut found = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match (found.next(), found.next()) {
            (first, None) => Ok(first),
            _ => Err(ApiError::new(Code::BadRequest, format!("the query parameter {name} is given twice"))),
        }
    }

    /// Returns the query with other names of its parameters: pairs of the sent name and the one that takes its place.
    pub(crate) fn renamed(&self, names: &[(&str, &str)]) -> Self {
        let new_name =
            |name: &str| names.iter().find(|(sent, _)| *sent == name).map_or(name, |(_, new)| *new).to_owned();
        Self(self.0.iter().map(|(name, value)| (new_name(name), value.clone())).collect())
    }

    /// Returns all parameters in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        self.raw(name)?.map(|text| without_nul(name, text)).transpose()
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.raw(name)? else { return Ok(None) };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ApiError::field(name, FieldCode::InvalidType, "must be an integer"));
        }
        // A number that overflows becomes the closest one, which is outside of every allowed range.
        let overflow = if text.starts_with('-') { i64::MIN } else { i64::MAX };
        Ok(Some(text.parse().unwrap_or(overflow)))
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.raw(name)? {
            None => Ok(None),
            Some("true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(_) => Err(ApiError::field(name, FieldCode::InvalidType, "must be true or false")),
        }
    }

    /// Returns the pairs that are written as `name[key]=value`.
    fn map(&self, name: &str) -> Result<BTreeMap<String, String>, ApiError> {
        let mut map = BTreeMap::new();
        for (key, value) in &self.0 {
            let inner = key.strip_prefix(name).and_then(|rest| rest.strip_prefix('[')?.strip_suffix(']'));
            let Some(inner) = inner else { continue };
            without_nul(name, inner)?;
            without_nul(name, value)?;
            if map.insert(inner.to_owned(), value.clone()).is_some_and(|before| before != *value) {
                return Err(ApiError::new(Code::BadRequest, format!("the query parameter {name} has a key twice")));
            }
        }
        Ok(map)
    }

    /// Returns the items of a list that is written with commas, as `name=` several times or as `name[]=`.
    fn list(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let values = self.0.iter().filter(|(key, _)| key.strip_suffix("[]").unwrap_or(key) == name);
        let items = values.flat_map(|(_, value)| value.split(',')).filter(|item| !item.is_empty());
        items.map(|item| without_nul(name, item).map(str::to_owned)).collect()
    }
}

fn without_nul<'a>(name: &str, text: &'a str) -> Result<&'a str, ApiError> {
    if text.contains('\0') {
        return Err(ApiError::field(name, FieldCode::InvalidFormat, "may not hold a NUL"));
    }
    Ok(text)
}

/// Decodes percent-encoding. Malformed encoding is an error.
///
/// # Errors
/// `bad_request`.
pub(crate) fn decoded(text: &str) -> Result<String, ApiError> {
    let refused = || ApiError::new(Code::BadRequest, "the percent-encoding of the path or query cannot be read");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|hex| char::from(hex).to_digit(16));
        let (high, low) = (digit().ok_or_else(refused)?, digit().ok_or_else(refused)?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| refused())?);
    }
    String::from_utf8(bytes).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(text).expect(text)
    }

    #[test]
    fn values_are_read_strictly() {
        let ours = query("a=1&b=true&c=0&d=-5&e=1e3&f=%2B1&g=99999999999999999999&h");
        assert_eq!(ours.integer("a").expect("a"), Some(1));
        assert_eq!(ours.integer("d").expect("d"), Some(-5));
        assert_eq!(ours.integer("g").expect("g"), Some(i64::MAX));
        assert_eq!((ours.boolean("b").expect("b"), ours.boolean("c").expect("c")), (Some(true), Some(false)));
        assert_eq!((ours.text("h").expect("h"), ours.text("z").expect("z")), (Some(""), None));
        for wrong in ["b", "e", "f", "h"] {
            assert_eq!(ours.integer(wrong).expect_err(wrong).code(), Code::InvalidInput);
        }
        assert_eq!(ours.boolean("d").expect_err("d").code(), Code::InvalidInput);
    }

    #[test]
    fn maps_come_with_plain_or_encoded_brackets() {
        let tags = query("tags[a]=1&tags%5Bb%20c%5D=%C3%A4+x&tags=3&other[a]=2").map("tags").expect("tags");
        assert_eq!(tags, BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b c".to_owned(), "ä x".to_owned())]));
    }

    #[test]
    fn lists_come_with_commas_repeated_or_with_brackets() {
        let ours = query("a=1,2&a=3&b[]=x&b%5B%5D=y&c=");
        assert_eq!(ours.list("a").expect("a"), ["1", "2", "3"]);
        assert_eq!(ours.list("b").expect("b"), ["x", "y"]);
        assert_eq!(ours.list("c").expect("c"), Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert_eq!(Query::parse(text).map(|_| ()).expect_err(text).code(), Code::BadRequest);
        }
        assert_eq!(query("a=1&a=2").text("a").expect_err("twice").code(), Code::BadRequest);
    }
}
