//! The API keys and projects of the tests.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::{
    ApiKeyId, OrganizationId, ProjectId, StoreError, UserId,
    api_key::{ApiKey, ApiKeyRepository, KeySecret, KeyWithHash, MockApiKeyRepository},
    name::LabelName,
    page::{Listed, Page},
    permission::{Policy, Statement},
    project::{MockProjectRepository, Project},
    testing::{NOON, organization_id, project, project_id},
};
use time::OffsetDateTime;

/// The API keys of the tests.
#[derive(Clone, Copy)]
pub(in crate::api) enum Key {
    /// A key of the whole organization.
    Organization = 1,
    /// A key of another project.
    OtherProject = 2,
    /// A revoked key.
    Revoked = 3,
}

pub(in crate::api) fn other_project() -> ProjectId {
    ProjectId::from_ulid(nth(2, 2))
}

fn nth(high: u64, low: u128) -> ulid::Ulid {
    ulid::Ulid::from_parts(high, low)
}

impl Key {
    fn id(self) -> ApiKeyId {
        ApiKeyId::from_ulid(nth(9, self as u128))
    }

    fn secret(self) -> KeySecret {
        struct Fixed(u8);
        impl casement_domain::Entropy for Fixed {
            fn secret_bytes(&self) -> [u8; 32] {
                [self.0; 32]
            }
        }
        KeySecret::mint(&Fixed(self as u8))
    }

    pub(in crate::api) fn text(self) -> String {
        self.secret().key_text(self.id())
    }

    fn stored(self) -> KeyWithHash {
        let key = ApiKey {
            id: self.id(),
            organization: organization_id(),
            project: matches!(self, Self::OtherProject).then(other_project),
            name: LabelName::parse("test").unwrap(),
            hash: self.secret().hash(),
            last4: self.secret().last4(),
            created_by: UserId::from_ulid(nth(8, 1)),
            created_at: NOON,
            expires_at: None,
            deleted_at: matches!(self, Self::Revoked).then_some(NOON),
            for_deployment: false,
            policy: None,
        };
        KeyWithHash { key, project_deleted: false, home: None }
    }
}

pub(in crate::api) fn default_keys() -> MockApiKeyRepository {
    let mut keys = MockApiKeyRepository::new();
    keys.expect_find().returning(|id| {
        let keys = [Key::Organization, Key::OtherProject, Key::Revoked];
        Ok(keys.into_iter().find(|key| key.id() == id).map(Key::stored))
    });
    keys
}

/// Returns the keys of the tests, of which the organization's key has a policy of these actions and resources.
pub(in crate::api) fn keys_with_policy(statements: &[(&str, &str)]) -> MockApiKeyRepository {
    let parsed = statements.iter().map(|(action, resource)| Statement::parse(action, resource).unwrap());
    let policy = Policy::new(parsed.collect()).unwrap();
    keys_after(move |key| key.policy = Some(policy.clone()))
}

/// Returns the keys of the tests, of which the organization's key is changed.
pub(in crate::api) fn keys_after(change: impl Fn(&mut ApiKey) + Send + Sync + 'static) -> MockApiKeyRepository {
    let mut keys = MockApiKeyRepository::new();
    keys.expect_find().returning(move |id| {
        let mut stored = [Key::Organization, Key::OtherProject].into_iter().find(|key| key.id() == id).map(Key::stored);
        if let Some(stored) = stored.as_mut().filter(|_| id == Key::Organization.id()) {
            change(&mut stored.key);
        }
        Ok(stored)
    });
    keys
}

/// A repository of keys that takes time to respond.
pub(super) struct DelayedKeys {
    pub(super) keys: MockApiKeyRepository,
    pub(super) delay: Duration,
}

#[async_trait]
impl ApiKeyRepository for DelayedKeys {
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError> {
        self.keys.insert(key).await
    }

    async fn find(&self, id: ApiKeyId) -> Result<Option<KeyWithHash>, StoreError> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        self.keys.find(id).await
    }

    async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<ApiKey>, StoreError> {
        self.keys.list(organization, page).await
    }

    async fn delete(&self, organization: OrganizationId, id: ApiKeyId, at: OffsetDateTime) -> Result<bool, StoreError> {
        self.keys.delete(organization, id, at).await
    }
}

pub(in crate::api) fn projects() -> MockProjectRepository {
    let mut projects = MockProjectRepository::new();
    projects.expect_default_of().returning(|_| Ok(project()));
    projects
        .expect_find()
        .returning(|_, id| Ok([project_id(), other_project()].contains(&id).then(|| Project { id, ..project() })));
    projects
}
