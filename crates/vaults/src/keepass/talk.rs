//! What the program that reads a database is asked and answers, in JSON.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Asked once, through standard input.
#[derive(Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) password: Hidden,
    pub(super) what: What,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) enum What {
    /// Whether the password opens it.
    Opens,
    /// Its logins.
    Logins,
    /// What the login of that identifier holds.
    Secrets(String),
}

/// Answered once, through standard output.
#[derive(Serialize, Deserialize)]
pub(super) enum Answered {
    Opens,
    Logins(Vec<Login>),
    Secrets(Secrets),
    /// It is no file that can be opened: the kind of error.
    NoFile(String),
    /// The password is another one.
    Refused,
    /// There is no such login.
    NotFound,
    /// It is something else than expected.
    InvalidValue(String),
}

#[derive(Serialize, Deserialize)]
pub(super) struct Login {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) urls: Vec<String>,
    /// Seconds since 1970.
    pub(super) changed_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Secrets {
    pub(super) username: Option<Hidden>,
    pub(super) password: Option<Hidden>,
    /// As it stands there.
    pub(super) one_time: Option<Hidden>,
    pub(super) values: BTreeMap<String, Hidden>,
}

/// A secret on the way between the two programs.
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
