//! What a Connect server answers, as its documentation has it, and nothing more of it than is needed.

use casement_domain::credential_provider::ProviderFault;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};

/// `GET /v1/vaults`, one of them.
#[derive(Deserialize)]
pub(crate) struct Vault {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
}

/// `GET /v1/vaults/{id}/items`, one of them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) title: String,
    pub(crate) category: String,
    /// `ARCHIVED` and `DELETED`; absent of others.
    pub(crate) state: Option<String>,
    #[serde(default)]
    pub(crate) trashed: bool,
    pub(crate) urls: Option<Vec<ItemUrl>>,
    pub(crate) updated_at: Option<String>,
}

impl Item {
    /// Whether it is a login that is in use.
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
    pub(crate) fields: Option<Vec<Field>>,
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
    /// The code that holds now, of fields that make codes.
    #[serde(default, deserialize_with = "secret")]
    pub(crate) totp: Option<SecretString>,
}

fn secret<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(input)?.map(Into::into))
}

/// Reads an answer. What is wrong with it is said without a word of it.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], what: &str) -> Result<T, ProviderFault> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        ProviderFault::BadAnswer(format!("no {what} in JSON, at line {line}, column {column}"))
    })
}
