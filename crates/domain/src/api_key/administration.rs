//! The use cases of administrators for API keys.

use std::sync::Arc;

use time::Duration;

use super::{ApiKey, ApiKeyDirectory, ApiKeys, Caller, CreatedKey, KeyEntry, KeyFilter, KeyRequest};
use crate::clock::Clock;
use crate::error::{NotFound, SpecificError, UseCaseError};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, required, within};
use crate::ids::{ApiKeyId, OrganizationId};
use crate::name::LabelName;
use crate::page::{Listed, Page};
use crate::project::ProjectRepository;
use crate::store_error::StoreError;

/// The default number of days for which the old key stays valid after a rotation.
const GRACE_DAYS: u32 = 7;
/// The maximum lifetime of a key, and of an old key after a rotation, in days.
pub const MAX_DAYS: u32 = 3650;

/// The error of a use case of the administration of keys.
pub type KeyError = UseCaseError<CannotDeleteItself>;

/// The error of a request to delete the key that authenticates it: its caller would have no key left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("API key {0} cannot delete itself")]
pub struct CannotDeleteItself(pub ApiKeyId);

impl SpecificError for CannotDeleteItself {}

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

    /// Creates a key on behalf of the caller. The key expires after `days_to_expire`, 1 to 3650, or never. With
    /// `project_id` it opens that project only.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub async fn create(
        &self,
        caller: &Caller,
        name: Option<String>,
        days_to_expire: Option<i64>,
        project_id: Option<&str>,
    ) -> Result<(KeyEntry, CreatedKey), KeyError> {
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
        let new = KeyRequest { name, days_to_expire, project };
        let made = self.keys.create(caller.organization, caller.user, new).await?;
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
            return Err(CannotDeleteItself(id).into());
        }
        self.keys.revoke(caller.organization, id).await.map_err(|error| match error {
            UseCaseError::NotFound(_) => not_found(which).into(),
            other => other.into(),
        })
    }

    /// Replaces a key by a new one with the same name and project. The new key expires after `days_to_expire`, 1 to
    /// 3650, default the lifetime of the old key; the old key expires after `expire_in_days`, 0 to 3650, default 7.
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
        let draft = KeyRequest { name: Some(old.name.as_str().to_owned()), days_to_expire: None, project: old.project };
        let mut made = self.keys.draft(caller.organization, caller.user, draft)?;
        let now = self.clock.now();
        let life = match days {
            Some(days) => Some(Duration::days(i64::from(days))),
            None => old.expires_at.map(|end| end - old.created_at),
        };
        made.key.expires_at = life.map(|life| now + life);
        let expires_at = now + Duration::days(i64::from(grace.unwrap_or(GRACE_DAYS)));
        if !self.directory.rotate(old.id, expires_at, &made.key).await? {
            return Err(not_found(which).into());
        }
        Ok((self.entry_of(&made.key).await?, made))
    }
}

fn not_found(which: &str) -> NotFound {
    NotFound::new("API key", which)
}
