//! The use cases of administrators for API keys.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::service::MAX_DAYS;
use super::{ApiKey, ApiKeyDirectory, ApiKeys, Caller, CreatedKey, KeyEntry, KeyFilter, KeyRequest};
use crate::clock::Clock;
use crate::error::{NotFound, SpecificError, UseCaseError};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, required, within};
use crate::ids::{ApiKeyId, OrganizationId};
use crate::name::LabelName;
use crate::page::{Listed, Page};
use crate::permission::{Action, InsufficientScope, Kind, PolicyRequest, Target, Verb, Which};
use crate::project::ProjectRepository;
use crate::store_error::StoreError;

/// The default number of days for which the old key stays valid after a rotation.
const GRACE_DAYS: u32 = 7;

/// The error of a use case of the administration of keys.
pub type KeyError = UseCaseError<KeyRefused>;

/// The error that is specific to the administration of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefused {
    /// The key authenticates the request to delete it: its caller would have no key left.
    #[error("API key {0} cannot delete itself")]
    DeletesItself(ApiKeyId),
    /// The new key would allow more than the key of the request.
    #[error(transparent)]
    InsufficientScope(#[from] InsufficientScope),
}

impl SpecificError for KeyRefused {}

impl From<InsufficientScope> for KeyError {
    fn from(error: InsufficientScope) -> Self {
        Self::Specific(error.into())
    }
}

/// A key to create.
#[derive(Clone, Debug, Default)]
pub struct NewKeyRequest {
    /// The name; required.
    pub name: Option<String>,
    /// See [`KeyRequest::days_to_expire`].
    pub days_to_expire: Option<i64>,
    /// See [`KeyRequest::expires_at`].
    pub expires_at: Option<OffsetDateTime>,
    /// The id of the only project that the key opens; `None`: all projects.
    pub project_id: Option<String>,
    /// See [`KeyRequest::policy`].
    pub policy: Option<PolicyRequest>,
}

/// The use cases of administrators for API keys.
#[derive(Clone)]
pub struct KeyAdministration {
    keys: ApiKeys,
    directory: Arc<dyn ApiKeyDirectory>,
    projects: Arc<dyn ProjectRepository>,
    clock: Arc<dyn Clock>,
}

impl KeyAdministration {
    /// Creates the use cases.
    #[must_use]
    pub fn new(
        keys: ApiKeys,
        directory: Arc<dyn ApiKeyDirectory>,
        projects: Arc<dyn ProjectRepository>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { keys, directory, projects, clock }
    }

    /// Creates a key on behalf of the caller, which allows nothing that the caller's key does not allow.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub async fn create(&self, caller: &Caller, request: NewKeyRequest) -> Result<(KeyEntry, CreatedKey), KeyError> {
        let NewKeyRequest { name, days_to_expire, expires_at, project_id, policy } = request;
        let project = match project_id {
            None => None,
            Some(text) => {
                let found = match text.parse() {
                    Ok(id) => self.projects.find(caller.organization, id).await?,
                    Err(_) => None,
                };
                let missing =
                    || InvalidValue::new(FieldCode::ReferenceNotFound, "names no project of the organization");
                Some(found.ok_or_else(|| InvalidInput::of("project_id", missing()))?.id)
            }
        };
        let new = KeyRequest { name, days_to_expire, expires_at, policy, project };
        let made = self.keys.draft(caller.organization, caller.user, new)?;
        let field = if days_to_expire.is_some() { "days_to_expire" } else { "expires_at" };
        may_issue(caller, &made.key, field)?;
        self.keys.store(&made.key).await?;
        Ok((self.entry_of(&made.key).await?, made))
    }

    /// Returns the entry of a key that was just stored. A store error of this read is marked as maybe done.
    async fn entry_of(&self, key: &ApiKey) -> Result<KeyEntry, KeyError> {
        self.get(key.organization, &key.id.to_string(), false).await.map_err(|error| match error {
            KeyError::Store(error) => error.with_maybe_done(true).into(),
            other => other,
        })
    }

    /// Returns the keys of an organization that match the filter.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        organization: OrganizationId,
        filter: &KeyFilter,
        page: Page,
    ) -> Result<Listed<KeyEntry>, StoreError> {
        self.directory.list(organization, filter, page).await
    }

    /// Returns the key with the id `which`, a deleted key only with `include_deleted`.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(
        &self,
        organization: OrganizationId,
        which: &str,
        include_deleted: bool,
    ) -> Result<KeyEntry, KeyError> {
        let found = match which.parse() {
            Ok(id) => self.directory.find(organization, id).await?,
            Err(_) => None,
        };
        found.filter(|entry| include_deleted || entry.key.deleted_at.is_none()).ok_or_else(|| not_found(which).into())
    }

    /// Renames a key.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub async fn rename(
        &self,
        organization: OrganizationId,
        which: &str,
        name: Option<String>,
    ) -> Result<KeyEntry, KeyError> {
        let name = required("name", name, |text| LabelName::parse(&text))?;
        let entry = self.get(organization, which, false).await?;
        if !self.directory.rename(organization, entry.key.id, &name).await? {
            return Err(not_found(which).into());
        }
        self.get(organization, which, false).await
    }

    /// Revokes a key, except the key of the caller.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub async fn delete(&self, caller: &Caller, which: &str) -> Result<(), KeyError> {
        let id = which.parse::<ApiKeyId>().map_err(|_| not_found(which))?;
        if id == caller.key {
            return Err(KeyRefused::DeletesItself(id).into());
        }
        self.keys.revoke(caller.organization, id).await.map_err(|error| match error {
            UseCaseError::NotFound(_) => not_found(which).into(),
            other => other.into(),
        })
    }

    /// Replaces a key by a new one with the same name, project and policy, which may not allow more than the caller's key.
    /// The new key expires after `days_to_expire`, 1 to 3650, default the lifetime of the old key; the old key, which the
    /// caller must be allowed to change, expires after `expire_in_days`, 0 to 3650, default 7.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub async fn rotate(
        &self,
        caller: &Caller,
        which: &str,
        days_to_expire: Option<i64>,
        expire_in_days: Option<i64>,
    ) -> Result<(KeyEntry, CreatedKey), KeyError> {
        let mut fields = Fields::new();
        let days = fields.take_optional("days_to_expire", days_to_expire, |n| within(n, 1, MAX_DAYS));
        let grace = fields.take_optional("expire_in_days", expire_in_days, |n| within(n, 0, MAX_DAYS));
        fields.finish()?;
        let old = self.get(caller.organization, which, false).await?.key;
        let ends = Target::InOrganization(Kind::ApiKeys, Which::Id(old.id.ulid()));
        caller.permissions.require(Action::new(Kind::ApiKeys, Verb::Update), ends)?;
        let name = Some(old.name.as_str().to_owned());
        let draft = KeyRequest { name, project: old.project, ..KeyRequest::default() };
        let mut made = self.keys.draft(caller.organization, caller.user, draft)?;
        let now = self.clock.now();
        let life = match days {
            Some(days) => Some(Duration::days(i64::from(days))),
            None => old.expires_at.map(|end| end - old.created_at),
        };
        made.key.expires_at = life.map(|life| now + life);
        made.key.policy = old.policy;
        may_issue(caller, &made.key, "days_to_expire")?;
        let expires_at = now + Duration::days(i64::from(grace.unwrap_or(GRACE_DAYS)));
        if !self.directory.rotate(old.id, expires_at, &made.key).await? {
            return Err(not_found(which).into());
        }
        Ok((self.entry_of(&made.key).await?, made))
    }
}

/// Checks that a new key allows nothing that the caller's key does not allow, and expires no later. `field`: the field of
/// the request that sets the expiry.
fn may_issue(caller: &Caller, key: &ApiKey, field: &str) -> Result<(), KeyError> {
    if caller.project.is_some() && caller.project != key.project {
        return Err(InsufficientScope::Project.into());
    }
    caller.permissions.require_within(&key.policy.clone().into())?;
    match caller.expires_at {
        Some(end) if key.expires_at.is_none_or(|expires_at| expires_at > end) => {
            let message = "the key of the request expires earlier; a key cannot make one that outlives it";
            Err(InvalidInput::of(field, InvalidValue::new(FieldCode::OutOfRange, message)).into())
        }
        _ => Ok(()),
    }
}

fn not_found(which: &str) -> NotFound {
    NotFound::new("API key", which)
}
