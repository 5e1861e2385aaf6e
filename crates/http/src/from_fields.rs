//! Conversions of request bodies to the domain's requests.

use std::collections::BTreeMap;

use secrecy::SecretString;

/// Implements `From` for a type whose fields have the names of the source's fields. `via` names the function that
/// converts a field; further fields of the target take the values of `..`.
macro_rules! from_fields {
    ($from:ty => $to:ty { $($field:ident $(via $convert:path)?),* $(, ..$rest:expr)? }) => {
        impl From<$from> for $to {
            fn from(body: $from) -> Self {
                Self { $($field: $($convert)? (body.$field),)* $(..$rest)? }
            }
        }
    };
}

pub(crate) use from_fields;

/// Converts an optional field.
pub(crate) fn option<A, B: From<A>>(value: Option<A>) -> Option<B> {
    value.map(Into::into)
}

/// Converts secret values by name.
pub(crate) fn secrets(values: Option<BTreeMap<String, String>>) -> Option<BTreeMap<String, SecretString>> {
    values.map(|values| values.into_iter().map(|(name, value)| (name, value.into())).collect())
}
