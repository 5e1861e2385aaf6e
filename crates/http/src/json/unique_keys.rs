//! Reads JSON text as a value: no duplicate keys, bounded nesting, a bounded number of values.

use std::{cell::Cell, fmt};

use casement_domain::untrusted_json::MAX_VALUES;
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, de::Read};

/// The maximum nesting of arrays and objects in a body.
pub(super) const MAX_DEPTH: usize = 64;

/// Reads the text to its end.
///
/// # Errors
/// If it is not JSON, has a duplicate key or exceeds a bound.
pub(super) fn value<'de>(reader: &mut serde_json::Deserializer<impl Read<'de>>) -> Result<Value, serde_json::Error> {
    let value = UniqueKeys::root(&Cell::new(0)).deserialize(&mut *reader)?;
    reader.end()?;
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
