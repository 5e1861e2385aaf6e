//! Fills an empty store: the organization, its owner, the default project, an API key and a pool.

use casement_domain::UseCaseError;
use casement_domain::access::Scope;
use casement_domain::api_key::{ApiKeys, KeyRequest};
use casement_domain::name::LabelName;
use casement_domain::organization::{FirstStart, Organization, OrganizationRepository, User};
use casement_domain::permission::Permissions;
use casement_domain::pool::{PoolRequest, Pools};
use casement_domain::project::{Project, ProjectRepository, ProjectStatus};
use casement_domain::{Clock, IdSource, OrganizationId, ProjectId, UserId};
use tracing::info;

use crate::data_dir::DataDir;
use crate::settings::LimitSettings;
use crate::system::System;

/// The name of the pool.
pub(crate) const DEFAULT_POOL: &str = "default";
const DEFAULT_POOL_SIZE: i64 = 2;

/// Creates everything if the store is empty, except for the pool: the need for it is recorded, and [`default_pool`]
/// creates it when browsers can be started.
pub(crate) async fn begin(
    data_dir: &DataDir,
    organizations: &dyn OrganizationRepository,
    keys: &ApiKeys,
    with_pool: bool,
) -> anyhow::Result<()> {
    if organizations.first().await?.is_some() {
        return Ok(());
    }
    if with_pool {
        data_dir.want_default_pool()?;
    }
    let (now, ids) = (System.now(), &System as &dyn IdSource);
    let organization = Organization {
        id: OrganizationId::mint(ids),
        name: label("Casement")?,
        caps: Organization::DEFAULT_CAPS,
        default_project_max_concurrent_sessions: None,
        created_at: now,
    };
    let owner =
        User { id: UserId::mint(ids), organization: organization.id, email: String::new(), name: Some("Owner".into()) };
    let project = Project {
        id: ProjectId::mint(ids),
        organization: organization.id,
        name: label(Project::DEFAULT_NAME)?,
        is_default: true,
        status: ProjectStatus::Active,
        caps: Default::default(),
        created_at: now,
        updated_at: now,
    };
    let first = KeyRequest { name: Some("first key".into()), ..KeyRequest::default() };
    let made = keys.draft(organization.id, owner.id, first)?;
    // Writes the key's text first: if the process ends before the next write, the next start creates another key, so
    // an installation never lacks one.
    data_dir.write_api_key(&made.secret.key_text(made.key.id))?;
    let start = FirstStart { organization, owner, project, key: made.key };
    let began = organizations.begin(&start).await?;
    if began {
        info!(key_file = %data_dir.key_file().display(), "first start: created the organization, its default project and a key");
    } else {
        // Another server created everything at the same time, so this key is invalid, and the pool is its business.
        data_dir.drop_api_key()?;
        if with_pool {
            data_dir.has_default_pool()?;
        }
        info!("another server has just created the organization, its default project and a key");
    }
    Ok(())
}

fn label(text: &str) -> anyhow::Result<LabelName> {
    Ok(LabelName::parse(text)?)
}

/// Sets the organization's limits that the settings of this server name; the others stay unchanged.
pub(crate) async fn set_limits(
    organizations: &dyn OrganizationRepository,
    limits: &LimitSettings,
) -> anyhow::Result<()> {
    let Some(organization) = organizations.first().await? else { return Ok(()) };
    let caps = limits.caps(organization.caps);
    if caps != organization.caps {
        organizations.set_caps(organization.id, caps).await?;
        let (sessions, pooled) = (limit(caps.concurrent_sessions), limit(caps.pooled_sessions));
        let invocations = limit(caps.concurrent_invocations);
        info!(sessions, pooled, invocations, "changed the limits of the organization");
    }
    Ok(())
}

/// Returns a limit for the log.
fn limit(max: Option<u32>) -> String {
    max.map_or_else(|| "unlimited".to_owned(), |max| max.to_string())
}

/// Creates the pool `default` with two headless browsers, if the first start has not done so yet.
pub(crate) async fn default_pool(
    data_dir: &DataDir,
    organizations: &dyn OrganizationRepository,
    projects: &dyn ProjectRepository,
    pools: &Pools,
) -> anyhow::Result<()> {
    if !data_dir.wants_default_pool() {
        return Ok(());
    }
    let Some(organization) = organizations.first().await? else { return Ok(()) };
    let scope = Scope {
        project: projects.default_of(organization.id).await?,
        unscoped: true,
        organization_wide: true,
        permissions: Permissions::ALL,
    };
    let input = PoolRequest {
        name: Some(DEFAULT_POOL.into()),
        size: Some(DEFAULT_POOL_SIZE),
        headless: Some(true),
        ..PoolRequest::default()
    };
    match pools.create(&scope, input).await {
        // `NameTaken`: a previous process created the pool and ended before it removed the record.
        Ok(_) | Err(UseCaseError::NameTaken(_)) => data_dir.has_default_pool()?,
        Err(error) => return Err(error.into()),
    }
    info!("first start: created the pool `{DEFAULT_POOL}` of {DEFAULT_POOL_SIZE} headless browsers");
    Ok(())
}

/// Returns true if the default project has the pool `default`.
pub(crate) async fn has_default_pool(
    organizations: &dyn OrganizationRepository,
    projects: &dyn ProjectRepository,
    pools: &Pools,
) -> anyhow::Result<bool> {
    let Some(organization) = organizations.first().await? else { return Ok(false) };
    let scope = Scope {
        project: projects.default_of(organization.id).await?,
        unscoped: true,
        organization_wide: true,
        permissions: Permissions::ALL,
    };
    Ok(pools.get(&scope, DEFAULT_POOL).await?.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use casement_domain::api_key::MockApiKeyRepository;
    use casement_domain::organization::MockOrganizationRepository;

    use super::*;

    /// Starts on an empty store, in which this server (`first`) or another one creates everything.
    async fn started(first: bool) -> (tempfile::TempDir, DataDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let data_dir = DataDir::take(folder.path().join("data")).expect("a data directory");
        let mut organizations = MockOrganizationRepository::new();
        organizations.expect_first().returning(|| Ok(None));
        organizations.expect_begin().times(1).returning(move |_| Ok(first));
        let system = Arc::new(System);
        let keys = ApiKeys::new(Arc::new(MockApiKeyRepository::new()), system.clone(), system.clone(), system);
        begin(&data_dir, &organizations, &keys, true).await.expect("begun");
        (folder, data_dir)
    }

    #[tokio::test]
    async fn the_second_of_two_concurrent_first_starts_deletes_its_key_and_makes_no_pool() {
        let (_folder, data_dir) = started(true).await;
        assert!(data_dir.key_file().exists() && data_dir.wants_default_pool());
        let (_folder, data_dir) = started(false).await;
        assert!(!data_dir.key_file().exists() && !data_dir.wants_default_pool());
    }

    #[test]
    fn a_new_database_does_not_overwrite_the_key_of_an_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let data_dir = DataDir::take(folder.path().join("data")).expect("a data directory");
        for key in ["first", "second", "third"] {
            data_dir.write_api_key(key).expect("written");
        }
        let read = |name: &str| std::fs::read_to_string(data_dir.path().join(name)).expect("there");
        let key_files = ["api-key", "api-key.before-1", "api-key.before-2"].map(read);
        assert_eq!(key_files, ["third\n", "first\n", "second\n"]);
    }
}
