//! What an API key is; its secret is not part of it.

use time::OffsetDateTime;

use super::SecretHash;
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use crate::name::LabelName;

/// A key as it is kept: what it opens, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Which one; stands in the key's text.
    pub id: ApiKeyId,
    /// Which organization it opens.
    pub organization: OrganizationId,
    /// Which project alone it opens; `None`: all of them.
    pub project: Option<ProjectId>,
    /// For people; several keys may bear the same.
    pub name: LabelName,
    /// SHA-256 of its secret.
    pub hash: SecretHash,
    /// The last four characters of the secret, to recognise it by.
    pub last4: String,
    /// Who made it.
    pub created_by: UserId,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// From when on it is refused; `None`: never.
    pub expires_at: Option<OffsetDateTime>,
    /// When it was deleted.
    pub deleted_at: Option<OffsetDateTime>,
    /// Whether programs of a deployment call with it.
    pub for_deployment: bool,
}

/// What a key is at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// It opens what it is for.
    Active,
    /// Its time is over. Final for authentication.
    Expired,
    /// It was deleted. Final.
    Deleted,
}

impl ApiKey {
    /// What the key is at `now`.
    #[must_use]
    pub fn status(&self, now: OffsetDateTime) -> KeyStatus {
        match (self.deleted_at, self.expires_at) {
            (Some(_), _) => KeyStatus::Deleted,
            (None, Some(end)) if end <= now => KeyStatus::Expired,
            (None, _) => KeyStatus::Active,
        }
    }
}
