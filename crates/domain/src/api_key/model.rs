//! The API key as it is stored, without its secret.

use time::OffsetDateTime;

use super::SecretHash;
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use crate::name::LabelName;
use crate::permission::Policy;

/// An API key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The identifier, which is part of the key's text.
    pub id: ApiKeyId,
    /// The organization that the key opens.
    pub organization: OrganizationId,
    /// The only project that the key opens; `None`: all projects.
    pub project: Option<ProjectId>,
    /// The name, which need not be unique.
    pub name: LabelName,
    /// The SHA-256 hash of the secret.
    pub hash: SecretHash,
    /// The last four characters of the secret, by which a person recognises the key.
    pub last4: String,
    /// The user that created the key.
    pub created_by: UserId,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The time of expiry; `None`: never.
    pub expires_at: Option<OffsetDateTime>,
    /// The time of deletion.
    pub deleted_at: Option<OffsetDateTime>,
    /// True if the programs of a deployment use the key.
    pub for_deployment: bool,
    /// What the key allows in its scope; `None`: everything.
    pub policy: Option<Policy>,
}

/// The status of a key at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// The key is valid.
    Active,
    /// The key has expired. Final for authentication.
    Expired,
    /// The key was deleted. Final.
    Deleted,
}

impl ApiKey {
    /// Returns the status at `now`.
    #[must_use]
    pub fn status(&self, now: OffsetDateTime) -> KeyStatus {
        match (self.deleted_at, self.expires_at) {
            (Some(_), _) => KeyStatus::Deleted,
            (None, Some(end)) if end <= now => KeyStatus::Expired,
            (None, _) => KeyStatus::Active,
        }
    }
}
