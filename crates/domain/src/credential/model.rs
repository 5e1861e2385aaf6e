//! What a credential is.

use std::collections::BTreeMap;

use secrecy::SecretString;
use time::OffsetDateTime;

use super::TotpSecret;
use crate::ids::{CredentialId, ProjectId};
use crate::name::LabelName;

/// How many values a credential may hold.
pub const MAX_VALUES: usize = 50;

/// A credential that is kept, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Which one.
    pub id: CredentialId,
    /// Whose it is.
    pub project: ProjectId,
    /// Unique in the project.
    pub name: LabelName,
    /// The site that it is for: a host name, in lower case.
    pub domain: String,
    /// Whose button is to be pressed first, at a site that has it.
    pub sso_provider: Option<String>,
    /// What its values are called, sorted.
    pub value_keys: Vec<String>,
    /// Whether one-time codes can be made.
    pub has_totp_secret: bool,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    pub updated_at: OffsetDateTime,
}

/// One secret of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSecret {
    /// The value of that name.
    Value(String),
    /// What one-time codes are made of.
    Totp,
}

impl Credential {
    /// Where that secret of it is sealed.
    #[must_use]
    pub fn place(id: CredentialId, secret: &CredentialSecret) -> String {
        match secret {
            CredentialSecret::Value(name) => format!("credentials/{id}/values/{name}"),
            CredentialSecret::Totp => format!("credentials/{id}/totp"),
        }
    }
}

/// The secrets of a credential, each sealed in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedSecrets {
    /// By name.
    pub values: BTreeMap<String, Vec<u8>>,
    /// What one-time codes are made of.
    pub totp: Option<Vec<u8>>,
}

/// What changes of a credential; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialChange {
    /// Another name.
    pub name: Option<LabelName>,
    /// Another button, or none.
    pub sso_provider: Option<Option<String>>,
    /// Values to forget, before the others are put in.
    pub remove: Vec<String>,
    /// Values to put in, sealed.
    pub values: BTreeMap<String, Vec<u8>>,
    /// Another secret of one-time codes, sealed, or none.
    pub totp: Option<Option<Vec<u8>>>,
}

/// The secrets of a credential in clear, for as long as they are needed. `Debug` shows none.
#[derive(Default)]
pub struct PlainSecrets {
    /// By name.
    pub values: BTreeMap<String, SecretString>,
    /// What one-time codes are made of.
    pub totp: Option<TotpSecret>,
}

impl std::fmt::Debug for PlainSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenSecrets").field("values", &self.values.keys()).finish_non_exhaustive()
    }
}
