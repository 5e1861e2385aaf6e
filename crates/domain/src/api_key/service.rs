//! The use cases of API keys.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::{ApiKey, ApiKeyRepository, KeySecret, KeyStatus};
use crate::clock::{Clock, Entropy, IdSource};
use crate::error::{NotFound, UseCaseError};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use crate::name::LabelName;
use crate::page::{Listed, Page};
use crate::permission::{Permissions, Policy, PolicyRequest};
use crate::project::Project;
use crate::store_error::StoreError;

/// The maximum lifetime of a key, and of an old key after a rotation, in days.
pub const MAX_DAYS: u32 = 3650;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The API key of the caller.
    pub key: ApiKeyId,
    /// The user that created the key.
    pub user: UserId,
    /// The organization that the key opens.
    pub organization: OrganizationId,
    /// The only project that the key opens; `None`: all projects.
    pub project: Option<ProjectId>,
    /// See [`KeyWithHash::home`](super::KeyWithHash::home).
    pub home: Option<Project>,
    /// True if the caller is a program of a deployment.
    pub deployed: bool,
    /// What the key allows.
    pub permissions: Permissions,
    /// The time at which the key expires; `None`: never.
    pub expires_at: Option<OffsetDateTime>,
}

/// The error of an authentication.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticateError {
    /// The key is malformed, unknown, wrong, expired or deleted, or its project is deleted. The error hides which.
    #[error("the credential is missing or not valid")]
    Refused,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The unchecked fields of a new key.
#[derive(Clone, Debug, Default)]
pub struct KeyRequest {
    /// The name; required.
    pub name: Option<String>,
    /// The number of days until the key expires, 1 to 3650. Excludes `expires_at`; without both, it never expires.
    pub days_to_expire: Option<i64>,
    /// The time at which the key expires: in the future, at most 3650 days from now.
    pub expires_at: Option<OffsetDateTime>,
    /// What the key allows; `None`: everything.
    pub policy: Option<PolicyRequest>,
    /// The only project that the key opens; `None`: all projects.
    pub project: Option<ProjectId>,
}

/// A new key with its secret.
#[derive(Clone, Debug)]
pub struct CreatedKey {
    /// The key as it is stored.
    pub key: ApiKey,
    /// The secret, which is not stored.
    pub secret: KeySecret,
}

/// The use cases of API keys.
#[derive(Clone)]
pub struct ApiKeys {
    keys: Arc<dyn ApiKeyRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    entropy: Arc<dyn Entropy>,
}

impl ApiKeys {
    /// Creates the use cases.
    #[must_use]
    pub fn new(
        keys: Arc<dyn ApiKeyRepository>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self { keys, clock, ids, entropy }
    }

    /// Returns the caller that authenticates with the key `text`.
    ///
    /// # Errors
    /// [`AuthenticateError::Refused`] if the key is not valid; the error of the store.
    pub async fn authenticate(&self, text: &str) -> Result<Caller, AuthenticateError> {
        let (id, secret) = KeySecret::parse_key(text).ok_or(AuthenticateError::Refused)?;
        self.caller(id, |key| key.hash.matches(&secret)).await
    }

    /// Returns the caller of a key that was authenticated before, as at a sign-in. The key must still be valid.
    ///
    /// # Errors
    /// [`AuthenticateError::Refused`] if the key is no longer valid; the error of the store.
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
        let ApiKey { id, created_by, organization, project, for_deployment, policy, expires_at, .. } = found.key;
        Ok(Caller {
            key: id,
            user: created_by,
            organization,
            project,
            home: found.home,
            deployed: for_deployment,
            permissions: policy.into(),
            expires_at,
        })
    }

    /// Creates a key without storing it.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn draft(
        &self,
        organization: OrganizationId,
        created_by: UserId,
        mut request: KeyRequest,
    ) -> Result<CreatedKey, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_required("name", request.name.take(), |text| LabelName::parse(&text));
        let now = self.clock.now();
        let expires_at = expiry(&mut fields, &request, now);
        let policy = fields.take_optional("policy", request.policy, Policy::parse);
        let name = fields.finish_with(|| name)?;
        let secret = KeySecret::mint(self.entropy.as_ref());
        let key = ApiKey {
            id: ApiKeyId::mint(self.ids.as_ref()),
            organization,
            project: request.project,
            name,
            hash: secret.hash(),
            last4: secret.last4(),
            created_by,
            created_at: now,
            expires_at,
            deleted_at: None,
            for_deployment: false,
            policy,
        };
        Ok(CreatedKey { key, secret })
    }

    /// Creates and stores a key.
    ///
    /// # Errors
    /// Returns every field that breaks a rule, or the error of the store.
    pub async fn create(
        &self,
        organization: OrganizationId,
        created_by: UserId,
        request: KeyRequest,
    ) -> Result<CreatedKey, UseCaseError> {
        let made = self.draft(organization, created_by, request)?;
        self.store(&made.key).await?;
        Ok(made)
    }

    /// Stores a key that was drafted.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub(super) async fn store(&self, key: &ApiKey) -> Result<(), StoreError> {
        self.keys.insert(key).await
    }

    /// Returns the keys of an organization that are not deleted, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<ApiKey>, StoreError> {
        self.keys.list(organization, page).await
    }

    /// Revokes a key. It is refused from then on.
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

/// Returns the time at which a requested key expires.
fn expiry(fields: &mut Fields, request: &KeyRequest, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let days = fields.take_optional("days_to_expire", request.days_to_expire, |n| within(n, 1, MAX_DAYS));
    if request.days_to_expire.is_some() && request.expires_at.is_some() {
        for (field, other) in [("days_to_expire", "expires_at"), ("expires_at", "days_to_expire")] {
            let message = format!("cannot be given together with {other}");
            fields.refuse(field, InvalidValue::new(FieldCode::MutuallyExclusive, message));
        }
        return None;
    }
    let after = |days: u32| now + Duration::days(i64::from(days));
    let exact = fields.take_optional("expires_at", request.expires_at, |end| {
        let out_of_range = |message: String| Err(InvalidValue::new(FieldCode::OutOfRange, message));
        match end {
            end if end <= now => out_of_range("must be in the future".to_owned()),
            end if end > after(MAX_DAYS) => out_of_range(format!("must be at most {MAX_DAYS} days from now")),
            end => Ok(end),
        }
    });
    exact.or(days.map(after))
}
