//! Organizations, projects and keys.

use casement_domain::api_key::ApiKeyRepository;
use casement_domain::organization::{Caps, OrganizationRepository};
use casement_domain::page::Page;
use casement_domain::project::ProjectRepository;
use casement_domain::testing;
use pretty_assertions::assert_eq;

use crate::support::TestResult;
use crate::world::{World, first_start, key, key_id, seconds, user_id};

#[tokio::test]
async fn an_empty_database_begins_once() -> TestResult {
    let world = World::without_anything().await?;
    assert_eq!(world.organizations.first().await?, None);
    let start = first_start(testing::organization())?;
    let (one, other) = tokio::join!(world.organizations.begin(&start), world.organizations.begin(&start));
    assert!(one? != other?, "one of two servers makes it");
    assert_eq!(world.organizations.first().await?, Some(testing::organization()));
    assert_eq!(world.organizations.find(testing::organization_id()).await?, Some(testing::organization()));
    assert_eq!(world.organizations.owner(testing::organization_id()).await?, Some(user_id()));
    assert_eq!(world.projects.default_of(testing::organization_id()).await?, testing::project());
    Ok(())
}

#[tokio::test]
async fn limits_of_the_organization_are_what_was_set_last() -> TestResult {
    let world = World::new().await?;
    let caps = Caps { concurrent_sessions: Some(3), pooled_sessions: None, concurrent_invocations: Some(0) };
    world.organizations.set_caps(testing::organization_id(), caps).await?;
    assert_eq!(world.organizations.first().await?.map(|found| found.caps), Some(caps));
    Ok(())
}

#[tokio::test]
async fn a_project_is_found_by_its_name_without_case_and_accents() -> TestResult {
    let world = World::new().await?;
    world.db.execute("UPDATE projects SET name = 'Défault'").await?;
    let found = world.projects.find_by_name(testing::organization_id(), "DEFAULT").await?;
    assert_eq!(found.map(|project| project.id), Some(testing::project_id()));
    world.db.execute("UPDATE projects SET deleted_at = now()").await?;
    assert_eq!(world.projects.find(testing::organization_id(), testing::project_id()).await?, None);
    Ok(())
}

#[tokio::test]
async fn keys_are_listed_newest_first_and_deleted_once() -> TestResult {
    let world = World::new().await?;
    world.keys.insert(&key(2)?).await?;
    world.keys.insert(&key(3)?).await?;
    let page = Page { limit: 2, offset: 0 };
    let listed = world.keys.list(testing::organization_id(), page).await?;
    assert_eq!(listed.items, vec![key(3)?, key(2)?]);
    assert_eq!(listed.next_offset, Some(2));

    assert!(world.keys.delete(testing::organization_id(), key_id(2), seconds(9)).await?);
    assert!(!world.keys.delete(testing::organization_id(), key_id(2), seconds(10)).await?);
    let found = world.keys.find(key_id(2)).await?.ok_or("it is kept")?;
    assert_eq!(found.key.deleted_at, Some(seconds(9)));
    assert!(!found.project_deleted);
    assert_eq!(found.home, Some(testing::project()), "it opens all projects, so the default is its home");
    Ok(())
}

#[tokio::test]
async fn a_key_of_a_deleted_project_says_so() -> TestResult {
    let world = World::new().await?;
    let mut of_project = key(2)?;
    of_project.project = Some(testing::project_id());
    world.keys.insert(&of_project).await?;
    let found = world.keys.find(key_id(2)).await?.ok_or("it is kept")?;
    assert_eq!((found.project_deleted, found.home), (false, Some(testing::project())));
    world.db.execute("UPDATE projects SET deleted_at = now()").await?;
    let found = world.keys.find(key_id(2)).await?.ok_or("it is kept")?;
    assert_eq!((found.project_deleted, found.home), (true, None));
    Ok(())
}
