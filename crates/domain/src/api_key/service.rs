//! Use cases of keys.

use std::sync::Arc;

use time::Duration;

use super::{ApiKey, ApiKeyRepository, KeySecret, KeyStatus};
use crate::clock::{Clock, Entropy, IdSource};
use crate::error::{NotFound, UseCaseError};
use crate::field::{Fields, InvalidInput, within};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use crate::name::LabelName;
use crate::page::{Listed, Page};
use crate::project::Project;
use crate::store_error::StoreError;

/// Who calls, once the key was believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// With which key.
    pub key: ApiKeyId,
    /// Who made the key.
    pub user: UserId,
    /// Which organization it opens.
    pub organization: OrganizationId,
    /// Which project alone it opens; `None`: all.
    pub project: Option<ProjectId>,
    /// See [`KeyWithHash::home`](super::KeyWithHash::home).
    pub home: Option<Project>,
    /// Whether it is a program of a deployment.
    pub deployed: bool,
}

/// The credential does not open anything.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticateError {
    /// Malformed, unknown, wrong, expired or deleted: one answer for all, so that nobody learns which.
    #[error("the credential is missing or not valid")]
    Refused,
    /// It could not be looked up.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a new key is to be.
#[derive(Clone, Debug, Default)]
pub struct KeyRequest {
    /// For people.
    pub name: Option<String>,
    /// Days until it expires, 1 to 3650; `None`: never.
    pub days_to_expire: Option<i64>,
    /// Which project alone it opens.
    pub project: Option<ProjectId>,
}

/// A key that was just made.
#[derive(Clone, Debug)]
pub struct CreatedKey {
    /// What is kept.
    pub key: ApiKey,
    /// Its text, for this once.
    pub secret: KeySecret,
}

/// The use cases.
#[derive(Clone)]
pub struct ApiKeys {
    keys: Arc<dyn ApiKeyRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    entropy: Arc<dyn Entropy>,
}

impl ApiKeys {
    /// The use cases on these ports.
    #[must_use]
    pub fn new(
        keys: Arc<dyn ApiKeyRepository>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self { keys, clock, ids, entropy }
    }

    /// Who shows the key `text`.
    ///
    /// # Errors
    /// [`AuthenticateError::Refused`] for every key that opens nothing; the store's failure.
    pub async fn authenticate(&self, text: &str) -> Result<Caller, AuthenticateError> {
        let (id, secret) = KeySecret::parse_key(text).ok_or(AuthenticateError::Refused)?;
        self.caller(id, |key| key.hash.matches(&secret)).await
    }

    /// Who showed this key before, for whoever remembers that it was shown. What a key may not do any more, it may not do here.
    ///
    /// # Errors
    /// [`AuthenticateError::Refused`] once the key opens nothing; the store's failure.
    pub async fn remembered(&self, id: ApiKeyId) -> Result<Caller, AuthenticateError> {
        self.caller(id, |_| true).await
    }

    async fn caller(&self, id: ApiKeyId, shown: impl Fn(&ApiKey) -> bool + Send) -> Result<Caller, AuthenticateError> {
        let found = self.keys.find(id).await?.ok_or(AuthenticateError::Refused)?;
        let good =
            shown(&found.key) && found.key.status(self.clock.now()) == KeyStatus::Active && !found.project_deleted;
        if !good {
            return Err(AuthenticateError::Refused);
        }
        let ApiKey { id, created_by, organization, project, for_deployment, .. } = found.key;
        Ok(Caller { key: id, user: created_by, organization, project, home: found.home, deployed: for_deployment })
    }

    /// A key that is not stored yet.
    ///
    /// # Errors
    /// The fields that break a rule.
    pub fn draft(
        &self,
        organization: OrganizationId,
        created_by: UserId,
        wish: KeyRequest,
    ) -> Result<CreatedKey, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_required("name", wish.name, |text| LabelName::parse(&text));
        let days = fields.take_optional("days_to_expire", wish.days_to_expire, |n| within(n, 1, 3650));
        let name = fields.finish_with(|| name)?;
        let now = self.clock.now();
        let secret = KeySecret::mint(self.entropy.as_ref());
        let key = ApiKey {
            id: ApiKeyId::mint(self.ids.as_ref()),
            organization,
            project: wish.project,
            name,
            hash: secret.hash(),
            last4: secret.last4(),
            created_by,
            created_at: now,
            expires_at: days.map(|days| now + Duration::days(i64::from(days))),
            deleted_at: None,
            for_deployment: false,
        };
        Ok(CreatedKey { key, secret })
    }

    /// Makes a key.
    ///
    /// # Errors
    /// The fields that break a rule; the store's failure.
    pub async fn create(
        &self,
        organization: OrganizationId,
        created_by: UserId,
        wish: KeyRequest,
    ) -> Result<CreatedKey, UseCaseError> {
        let made = self.draft(organization, created_by, wish)?;
        self.keys.insert(&made.key).await?;
        Ok(made)
    }

    /// The keys of an organization, newest first.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<ApiKey>, StoreError> {
        self.keys.list(organization, page).await
    }

    /// Revokes a key: from now on it is refused everywhere.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn revoke(&self, organization: OrganizationId, id: ApiKeyId) -> Result<(), UseCaseError> {
        if self.keys.delete(organization, id, self.clock.now()).await? {
            Ok(())
        } else {
            Err(NotFound::new("API key", id.to_string()).into())
        }
    }
}
