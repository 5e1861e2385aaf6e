//! Reads the parameters of a query into a struct that declares them.

use std::{fmt, slice};

use casement_domain::field::FieldCode;
use serde::{
    Deserializer,
    de::{
        DeserializeSeed, IntoDeserializer as _, MapAccess, Visitor,
        value::{MapDeserializer, SeqDeserializer, StringDeserializer},
    },
    forward_to_deserialize_any,
};

use super::Query;
use crate::error::ApiError;

/// The reason why a query cannot be read.
#[derive(Debug)]
pub(super) struct QueryError(pub(super) ApiError);

impl From<ApiError> for QueryError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for QueryError {}

impl serde::de::Error for QueryError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(ApiError::internal(message.to_string()))
    }
}

/// A deserializer of a whole query into a struct.
pub(super) struct QueryDeserializer<'q>(pub(super) &'q Query);

impl<'de> Deserializer<'de> for QueryDeserializer<'_> {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        visitor.visit_map(Parameters { query: self.0, names: fields.iter(), next: "" })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The declared parameters, present or not.
struct Parameters<'q> {
    query: &'q Query,
    names: slice::Iter<'static, &'static str>,
    next: &'static str,
}

impl<'de> MapAccess<'de> for Parameters<'_> {
    type Error = QueryError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, QueryError> {
        let Some(name) = self.names.next() else { return Ok(None) };
        self.next = name;
        seed.deserialize((*name).into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, QueryError> {
        seed.deserialize(Parameter { query: self.query, name: self.next })
    }
}

/// A deserializer of one parameter. The type that is deserialized determines the format.
struct Parameter<'q> {
    query: &'q Query,
    name: &'static str,
}

impl Parameter<'_> {
    fn required<T>(&self, value: Option<T>) -> Result<T, QueryError> {
        value.ok_or_else(|| ApiError::field(self.name, FieldCode::Required, "is required").into())
    }
}

impl<'de> Deserializer<'de> for Parameter<'_> {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        let text = self.required(self.query.text(self.name)?)?;
        visitor.visit_str(text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        match self.query.raw(self.name)? {
            Some(_) => visitor.visit_some(self),
            None => visitor.visit_none(),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_i64(self.required(self.query.integer(self.name)?)?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_bool(self.required(self.query.boolean(self.name)?)?)
    }

    /// Reads a [`super::Verbatim`]: a text as it was sent, which may contain a NUL.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, QueryError> {
        let text = self.required(self.query.raw(self.name)?)?;
        visitor.visit_newtype_struct(StringDeserializer::<QueryError>::new(text.to_owned()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        let text = self.required(self.query.raw(self.name)?)?;
        if !variants.contains(&text) {
            let (last, others) = variants.split_last().unwrap_or((&"", &[]));
            let message = format!("must be {} or {last}", others.join(", "));
            return Err(ApiError::field(self.name, FieldCode::NotAllowed, message).into());
        }
        visitor.visit_enum(text.into_deserializer())
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_seq(SeqDeserializer::new(self.query.list(self.name)?.into_iter()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_map(MapDeserializer::new(self.query.map(self.name)?.into_iter()))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct struct
        identifier ignored_any
    }
}
