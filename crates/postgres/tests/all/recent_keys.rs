//! The cache of keys: changes by this node apply at once, those by other nodes within a second.

use std::time::Duration;

use casement_domain::api_key::{ApiKeyDirectory, ApiKeyRepository, KeyWithHash};
use casement_domain::project::{Project, ProjectReplaced, ProjectRepository, ProjectStatus};
use casement_domain::testing::{organization_id, project};
use casement_postgres::{PgApiKeys, PgProjects, RecentKeys};
use pretty_assertions::assert_eq;

use crate::support::TestResult;
use crate::world::{Fault, World, key, key_id, label, seconds};

/// The repositories of a node with a cache of keys.
struct Node {
    keys: PgApiKeys,
    projects: PgProjects,
}

fn node(world: &World) -> Node {
    let recent = RecentKeys::default();
    let database = || world.db.database().clone();
    Node {
        keys: PgApiKeys::new(database()).with_cache(recent.clone()),
        projects: PgProjects::new(database()).clearing_cache(recent),
    }
}

impl Node {
    async fn found(&self) -> Result<KeyWithHash, Fault> {
        Ok(ApiKeyRepository::find(&self.keys, key_id(1)).await?.ok_or("no key")?)
    }
}

#[tokio::test]
async fn what_a_node_changes_itself_holds_for_its_next_call() -> TestResult {
    let world = World::new().await?;
    let node = node(&world);
    assert_eq!(node.found().await?, node.found().await?);

    let archived = Project { status: ProjectStatus::Archived, updated_at: seconds(1), ..project() };
    assert_eq!(node.projects.replace(&project(), &archived).await?, ProjectReplaced::Yes);
    assert_eq!(node.found().await?.home, Some(archived));

    assert!(node.keys.rename(organization_id(), key_id(1), &label("mine")?).await?);
    assert_eq!(node.found().await?.key.name, label("mine")?);

    assert!(node.keys.rotate(key_id(1), seconds(100), &key(11)?).await?);
    assert_eq!(node.found().await?.key.expires_at, Some(seconds(100)));

    assert!(node.keys.delete(organization_id(), key_id(1), seconds(5)).await?);
    assert_eq!(node.found().await?.key.deleted_at, Some(seconds(5)));
    Ok(())
}

#[tokio::test]
async fn what_another_node_changes_holds_after_a_second_however_often_the_key_is_used() -> TestResult {
    let world = World::new().await?;
    let (here, elsewhere) = (node(&world), node(&world));
    assert_eq!(here.found().await?, elsewhere.found().await?);
    assert!(elsewhere.keys.delete(organization_id(), key_id(1), seconds(5)).await?);

    let revoked = std::time::Instant::now();
    while revoked.elapsed() < Duration::from_secs(1) {
        here.found().await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    assert_eq!(here.found().await?.key.deleted_at, Some(seconds(5)));
    Ok(())
}
