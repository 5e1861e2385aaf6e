//! The credential and its changes.

use std::collections::BTreeMap;

use secrecy::SecretString;
use time::OffsetDateTime;

use super::{TotpParameters, TotpSecret};
use crate::ids::{CredentialId, ProjectId};
use crate::name::LabelName;

/// The maximum number of values of a credential.
pub const MAX_VALUES: usize = 50;

/// A stored credential, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The id.
    pub id: CredentialId,
    /// The project.
    pub project: ProjectId,
    /// The name, which is unique in the project.
    pub name: LabelName,
    /// The site: a host name in lower case.
    pub domain: String,
    /// The single sign-on provider whose button a login clicks first, if the site has it.
    pub sso_provider: Option<String>,
    /// The names of the values, sorted.
    pub value_keys: Vec<String>,
    /// The parameters of its one-time codes, if it has a secret of them.
    pub totp: Option<TotpParameters>,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change.
    pub updated_at: OffsetDateTime,
}

/// One secret of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSecret {
    /// The value with this name.
    Value(String),
    /// The secret of one-time codes.
    Totp,
}

impl Credential {
    /// Returns the place that a secret is sealed for.
    #[must_use]
    pub fn place(id: CredentialId, secret: &CredentialSecret) -> String {
        match secret {
            CredentialSecret::Value(name) => format!("credentials/{id}/values/{name}"),
            CredentialSecret::Totp => format!("credentials/{id}/totp"),
        }
    }
}

/// The secrets of a credential, each sealed for its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedSecrets {
    /// The values by name.
    pub values: BTreeMap<String, Vec<u8>>,
    /// The secret of one-time codes.
    pub totp: Option<SealedTotp>,
}

/// A sealed secret of one-time codes, with their parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedTotp {
    /// The bytes of the secret, sealed.
    pub sealed: Vec<u8>,
    /// The parameters, which are no secret.
    pub parameters: TotpParameters,
}

/// A change of a credential. `None` leaves a field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialChange {
    /// The new name.
    pub name: Option<LabelName>,
    /// The new single sign-on provider, or none.
    pub sso_provider: Option<Option<String>>,
    /// The names of values that are removed before the others are set.
    pub remove: Vec<String>,
    /// The values to set, sealed.
    pub values: BTreeMap<String, Vec<u8>>,
    /// The new secret of one-time codes, or none.
    pub totp: Option<Option<SealedTotp>>,
}

/// The decrypted secrets of a credential. `Debug` does not show them.
#[derive(Default)]
pub struct PlainSecrets {
    /// The values by name.
    pub values: BTreeMap<String, SecretString>,
    /// The secret of one-time codes.
    pub totp: Option<TotpSecret>,
}

impl std::fmt::Debug for PlainSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainSecrets").field("values", &self.values.keys()).finish_non_exhaustive()
    }
}
