//! The documented responses of a Connect server, with only the members that are used.

use std::fmt;
use std::marker::PhantomData;

use casement_domain::credential_provider::ProviderFault;
use secrecy::SecretString;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::bounds::{MAX_FIELDS, MAX_URLS};

/// The first `MAX` items of a list. Further ones are not stored.
pub(crate) struct AtMost<T, const MAX: usize> {
    first: Vec<T>,
    more: bool,
}

impl<T, const MAX: usize> AtMost<T, MAX> {
    /// Returns the stored items.
    pub(crate) fn first(self) -> Vec<T> {
        self.first
    }

    /// Returns all items, or `None` if there were more than `MAX`.
    pub(crate) fn whole(self) -> Option<Vec<T>> {
        (!self.more).then_some(self.first)
    }
}

impl<T, const MAX: usize> Default for AtMost<T, MAX> {
    fn default() -> Self {
        Self { first: Vec::new(), more: false }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(AtMostVisitor(PhantomData))
    }
}

struct AtMostVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for AtMostVisitor<T, MAX> {
    type Value = AtMost<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut stored = AtMost::default();
        while stored.first.len() < MAX {
            match list.next_element()? {
                Some(one) => stored.first.push(one),
                None => return Ok(stored),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            stored.more = true;
        }
        Ok(stored)
    }
}

/// A member of `GET /v1/vaults`.
#[derive(Deserialize)]
pub(crate) struct Vault {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
}

/// A member of `GET /v1/vaults/{id}/items`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) title: String,
    pub(crate) category: String,
    /// `ARCHIVED` or `DELETED`; absent for other items.
    pub(crate) state: Option<String>,
    #[serde(default)]
    pub(crate) trashed: bool,
    pub(crate) urls: Option<AtMost<ItemUrl, MAX_URLS>>,
    pub(crate) updated_at: Option<String>,
}

impl Item {
    /// Returns true for a login that is neither archived nor deleted.
    pub(crate) fn is_login(&self) -> bool {
        self.category == "LOGIN" && self.state.is_none() && !self.trashed
    }
}

#[derive(Deserialize)]
pub(crate) struct ItemUrl {
    pub(crate) href: Option<String>,
}

/// `GET /v1/vaults/{id}/items/{id}`.
#[derive(Deserialize)]
pub(crate) struct WholeItem {
    pub(crate) id: String,
    pub(crate) fields: Option<AtMost<Field, MAX_FIELDS>>,
}

/// A field of an item.
#[derive(Deserialize)]
pub(crate) struct Field {
    #[serde(default)]
    pub(crate) id: String,
    #[serde(default, rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) purpose: Option<String>,
    #[serde(default)]
    pub(crate) label: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    pub(crate) value: Option<SecretString>,
    /// The current code, for fields with one-time codes.
    #[serde(default, deserialize_with = "secret")]
    pub(crate) totp: Option<SecretString>,
}

fn secret<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(input)?.map(Into::into))
}

/// Parses a response; `what` describes it in the error, which contains nothing of the response.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], what: &str) -> Result<T, ProviderFault> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        ProviderFault::BadAnswer(format!("no {what} in JSON, at line {line}, column {column}"))
    })
}
