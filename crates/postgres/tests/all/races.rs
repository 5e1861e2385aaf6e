//! Creations in a project that is deleted concurrently: exactly one of the two succeeds.

use std::collections::BTreeMap;

use casement_domain::api_key::ApiKey;
use casement_domain::auth_connection::{AuthConnection, AuthConnectionRepository as _, ConnectionStored};
use casement_domain::credential::{Credential, CredentialRepository as _, CredentialStored, SealedSecrets};
use casement_domain::deployment::{Deployment, DeploymentRepository as _, DeploymentStored, SealedDeployment};
use casement_domain::extension::{Extension, ExtensionRepository as _, ExtensionStored};
use casement_domain::pool::{Pool, PoolRepository as _, PoolStored};
use casement_domain::profile::{Profile, ProfileRepository as _, ProfileStored};
use casement_domain::project::{Project, ProjectDeleted, ProjectRepository as _, ProjectStored};
use casement_domain::proxy::{Proxy, ProxyRepository as _, ProxyStored};
use casement_domain::testing::{self, organization_id};
use casement_domain::{CredentialId, ExtensionId, ProfileId, ProjectId, ProxyId};
use casement_postgres::{PgAuthConnections, PgCredentials, PgDeployments, PgExtensions, PgProfiles, PgProxies};
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, key, label, seconds};

/// The number of rounds for each kind of resource.
const RACES: u32 = 12;

/// Whether the resource was created; `false` if its project was deleted.
type Made = Result<bool, Fault>;

/// Races `create` against the deletion of its project, with a new project for each round.
async fn race(world: &World, create: impl AsyncFn(u32, ProjectId) -> Made) -> TestResult {
    for n in 1..=RACES {
        let project = ProjectId::from_ulid(Ulid::from_parts(20, u128::from(n)));
        let named = Project { id: project, name: label(&format!("p{n}"))?, is_default: false, ..testing::project() };
        assert_eq!(world.projects.create(&named).await?, ProjectStored::Yes);
        let delete = async || world.projects.delete(organization_id(), project, seconds(9)).await;
        let (made, deleted) = tokio::join!(create(n, project), delete());
        match (made?, deleted?) {
            (true, ProjectDeleted::InUse(_)) | (false, ProjectDeleted::Yes) => {}
            other => return Err(format!("race {n}: {other:?}").into()),
        }
    }
    Ok(())
}

/// Converts the outcome `yes` to `true` and `gone` to `false`, and fails on others.
fn made<T: PartialEq + std::fmt::Debug>(stored: T, yes: &T, gone: &T) -> Made {
    if stored == *yes {
        Ok(true)
    } else if stored == *gone {
        Ok(false)
    } else {
        Err(format!("{stored:?}").into())
    }
}

#[tokio::test]
async fn no_pool_slips_past_the_deletion_of_its_project() -> TestResult {
    let world = World::new().await?;
    race(&world, async |n, project| {
        let pool = Pool { project, ..testing::pool(1).id(testing::pool_id(n)).build() };
        made(world.pools.create(organization_id(), &pool, 100).await?, &PoolStored::Yes, &PoolStored::Gone)
    })
    .await
}

#[tokio::test]
async fn no_profile_slips_past_the_deletion_of_its_project() -> TestResult {
    let world = World::new().await?;
    let profiles = PgProfiles::new(world.db.database().clone());
    race(&world, async |n, project| {
        let id = ProfileId::from_ulid(Ulid::from_parts(13, u128::from(n)));
        let profile = Profile { project: Some(project), ..testing::profile(id, "login") };
        made(profiles.create(&profile, 10).await?, &ProfileStored::Yes, &ProfileStored::ProjectGone)
    })
    .await
}

#[tokio::test]
async fn no_proxy_slips_past_the_deletion_of_its_project() -> TestResult {
    let world = World::new().await?;
    let proxies = PgProxies::new(world.db.database().clone());
    race(&world, async |n, project| {
        let id = ProxyId::from_ulid(Ulid::from_parts(12, u128::from(n)));
        let proxy = Proxy { project, ..testing::proxy(id, "exit") };
        made(proxies.create(&proxy, 10).await?, &ProxyStored::Yes, &ProxyStored::ProjectGone)
    })
    .await
}

#[tokio::test]
async fn no_extension_slips_past_the_deletion_of_its_project() -> TestResult {
    let world = World::new().await?;
    let extensions = PgExtensions::new(world.db.database().clone());
    race(&world, async |n, project| {
        let extension = Extension {
            id: ExtensionId::from_ulid(Ulid::from_parts(11, u128::from(n))),
            project,
            name: None,
            size_bytes: 1,
            checksum: "ab".repeat(32),
            created_at: seconds(0),
            last_used_at: None,
        };
        made(extensions.create(&extension, 10).await?, &ExtensionStored::Yes, &ExtensionStored::ProjectGone)
    })
    .await
}

#[tokio::test]
async fn no_credential_slips_past_the_deletion_of_its_project() -> TestResult {
    let world = World::new().await?;
    let credentials = PgCredentials::new(world.db.database().clone());
    let secrets = SealedSecrets { values: BTreeMap::new(), totp: None };
    race(&world, async |n, project| {
        let credential = Credential {
            id: CredentialId::from_ulid(Ulid::from_parts(14, u128::from(n))),
            project,
            name: label("shop")?,
            domain: "shop.example".to_owned(),
            sso_provider: None,
            value_keys: Vec::new(),
            totp: None,
            created_at: seconds(0),
            updated_at: seconds(0),
        };
        let stored = credentials.create(&credential, &secrets, 10).await?;
        made(stored, &CredentialStored::Yes, &CredentialStored::ProjectGone)
    })
    .await
}

#[tokio::test]
async fn no_auth_connection_slips_past_the_deletion_of_its_project() -> TestResult {
    let world = World::new().await?;
    let profiles = PgProfiles::new(world.db.database().clone());
    let connections = PgAuthConnections::new(world.db.database().clone());
    race(&world, async |n, project| {
        // In another project, so that it does not prevent the deletion of this one.
        let profile = ProfileId::from_ulid(Ulid::from_parts(13, u128::from(n)));
        let stored = profiles.create(&testing::profile(profile, &format!("login-{n}")), 100).await?;
        assert_eq!(stored, ProfileStored::Yes);
        let connection = AuthConnection { project, ..testing::auth_connection(n, profile) };
        let stored = connections.create(&connection, 10).await?;
        made(stored, &ConnectionStored::Yes, &ConnectionStored::ProjectGone)
    })
    .await
}

#[tokio::test]
async fn no_deployment_slips_past_the_deletion_of_its_project() -> TestResult {
    let world = World::new().await?;
    let deployments = PgDeployments::new(world.db.database().clone());
    let secrets = SealedDeployment { env_vars: BTreeMap::new(), token: None, api_key: vec![1] };
    race(&world, async |n, project| {
        let one = Deployment { project, ..testing::deployment(n) };
        let its_key = ApiKey { id: one.api_key, project: Some(project), for_deployment: true, ..key(100)? };
        let stored = deployments.create(organization_id(), &one, &secrets, &its_key, 10).await?;
        made(stored, &DeploymentStored::Yes, &DeploymentStored::ProjectGone)
    })
    .await
}
