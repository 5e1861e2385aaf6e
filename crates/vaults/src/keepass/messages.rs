//! The request to the program that reads a database, and its response, in JSON.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The request, on standard input.
#[derive(Serialize, Deserialize)]
pub(super) struct ReaderRequest {
    pub(super) password: Hidden,
    pub(super) query: Query,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Query {
    /// Checks that the password opens the database.
    Opens,
    /// Lists the logins of the database.
    Logins,
    /// Returns the content of the login with this identifier.
    Secrets(String),
}

/// The response, on standard output.
#[derive(Serialize, Deserialize)]
pub(super) enum ReaderResponse {
    Opens,
    Logins(Vec<Login>),
    Secrets(Secrets),
    /// The file cannot be opened; the text is the kind of the error.
    NoFile(String),
    /// The password is wrong.
    Refused,
    /// There is no such login.
    NotFound,
    /// The content of the file is invalid; the text is the reason.
    InvalidValue(String),
}

#[derive(Serialize, Deserialize)]
pub(super) struct Login {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) urls: Vec<String>,
    /// The time of the last change, in seconds since 1970.
    pub(super) changed_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Secrets {
    pub(super) username: Option<Hidden>,
    pub(super) password: Option<Hidden>,
    /// The stored text of the one-time code secret.
    pub(super) one_time: Option<Hidden>,
    pub(super) values: BTreeMap<String, Hidden>,
}

/// A secret in a message between the two programs.
pub(super) struct Hidden(pub(super) SecretString);

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.0.expose_secret().serialize(out)
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input).map(|text| Self(text.into()))
    }
}
