//! API keys: the directory for administrators.

use casement_domain::api_key::{ApiKey, ApiKeyDirectory, ApiKeyRepository, KeyFilter, KeyOrder};
use casement_domain::page::Page;
use casement_domain::permission::{Policy, Statement};
use casement_domain::session::StatusFilter;
use casement_domain::testing::{organization_id, project_id};
use casement_domain::{OrganizationId, StoreError};
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{World, key, key_id, label, seconds};

async fn found(world: &World, change: impl FnOnce(&mut KeyFilter)) -> Result<Vec<String>, StoreError> {
    let mut filter = KeyFilter::default();
    change(&mut filter);
    let page = Page { limit: 100, offset: 0 };
    let listed = ApiKeyDirectory::list(&world.keys, organization_id(), &filter, page).await?;
    Ok(listed.items.into_iter().map(|entry| entry.key.name.to_string()).collect())
}

/// `first` (the installation's), `Ärger` of the default project, `zebra` that expires, `gone` that is deleted.
async fn world() -> Result<World, crate::world::Fault> {
    let world = World::new().await?;
    let named = |n: u32, name: &str| Ok::<_, crate::world::Fault>(ApiKey { name: label(name)?, ..key(n)? });
    world.keys.insert(&ApiKey { project: Some(project_id()), ..named(2, "Ärger")? }).await?;
    world.keys.insert(&ApiKey { expires_at: Some(seconds(50)), ..named(3, "zebra")? }).await?;
    world.keys.insert(&ApiKey { deleted_at: Some(seconds(60)), ..named(4, "gone")? }).await?;
    world.db.execute("UPDATE users SET email = 'ada@casement.test', name = 'Ada'").await?;
    Ok(world)
}

#[tokio::test]
async fn keys_are_listed_by_status_and_in_the_order_that_is_requested_for() -> TestResult {
    let world = world().await?;
    assert_eq!(found(&world, |_| ()).await?, ["zebra", "Ärger", "first"]);
    assert_eq!(found(&world, |f| f.status = StatusFilter::Deleted).await?, ["gone"]);
    assert_eq!(found(&world, |f| f.status = StatusFilter::All).await?, ["gone", "zebra", "Ärger", "first"]);
    let expires = |f: &mut KeyFilter| (f.order, f.ascending) = (KeyOrder::ExpiresAt, true);
    assert_eq!(found(&world, expires).await?[0], "zebra");
    Ok(())
}

#[tokio::test]
async fn keys_are_found_by_name_maker_project_and_the_beginning_of_their_text() -> TestResult {
    let world = world().await?;
    assert_eq!(found(&world, |f| f.name = Some("ARGER".into())).await?, ["Ärger"]);
    assert_eq!(found(&world, |f| f.query = Some("EBR".into())).await?, ["zebra"]);
    assert_eq!(found(&world, |f| f.query = Some("ada@".into())).await?.len(), 3);
    assert_eq!(found(&world, |f| f.query = Some("defaul".into())).await?, ["Ärger"]);
    let masked = casement_domain::api_key::masked(key_id(3), "abcd");
    assert_eq!(found(&world, |f| f.query = Some(masked)).await?, ["zebra"]);
    assert_eq!(found(&world, |f| f.query = Some(key_id(2).to_string().to_uppercase())).await?, ["Ärger"]);
    assert_eq!(found(&world, |f| f.query = Some("%".into())).await?, Vec::<String>::new());
    assert_eq!(found(&world, |f| f.name = Some("' OR true --".into())).await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn an_entry_says_who_made_it_and_what_it_opens_to_its_own_organization() -> TestResult {
    let world = world().await?;
    let entry = ApiKeyDirectory::find(&world.keys, organization_id(), key_id(2)).await?.ok_or("no entry")?;
    assert_eq!((entry.created_by.email.as_str(), entry.created_by.name.as_deref()), ("ada@casement.test", Some("Ada")));
    assert_eq!(entry.project_name.as_deref(), Some("default"));
    let other = OrganizationId::from_ulid(Ulid::from_parts(66, 6));
    assert_eq!(ApiKeyDirectory::find(&world.keys, other, key_id(2)).await?, None);
    assert!(!world.keys.rename(other, key_id(2), &label("mine")?).await?);
    assert!(world.keys.rename(organization_id(), key_id(2), &label("mine")?).await?);
    assert!(!world.keys.rename(organization_id(), key_id(4), &label("mine")?).await?, "it is deleted");
    Ok(())
}

#[tokio::test]
async fn a_rotation_shortens_the_old_life_and_never_lengthens_it() -> TestResult {
    let world = world().await?;
    let expires = async |n| {
        let entry = ApiKeyDirectory::find(&world.keys, organization_id(), key_id(n)).await?;
        Ok::<_, StoreError>(entry.and_then(|entry| entry.key.expires_at))
    };
    assert!(world.keys.rotate(key_id(1), seconds(100), &key(11)?).await?);
    assert_eq!(expires(1).await?, Some(seconds(100)));
    assert!(world.keys.rotate(key_id(3), seconds(100), &key(13)?).await?);
    assert_eq!(expires(3).await?, Some(seconds(50)));
    assert!(!world.keys.rotate(key_id(4), seconds(100), &key(14)?).await?, "it is deleted");
    assert_eq!(ApiKeyDirectory::find(&world.keys, organization_id(), key_id(14)).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_policy_is_stored_with_its_key() -> TestResult {
    let world = World::new().await?;
    let policy = |resource| Policy::new(vec![Statement::parse("browsers:read", resource).ok()?]).ok();
    for (n, policy) in [(2, policy("*")), (3, policy("projects/*/browsers/*")), (4, None)] {
        let stored = ApiKey { policy, ..key(n)? };
        world.keys.insert(&stored).await?;
        let read = ApiKeyRepository::find(&world.keys, stored.id).await?;
        assert_eq!(read.map(|read| read.key), Some(stored));
    }
    let unknown = r#"{"statements": [{"action": "souls:read", "resource": "*"}]}"#;
    world.db.execute(&format!("UPDATE api_keys SET policy = '{unknown}'")).await?;
    assert!(ApiKeyRepository::find(&world.keys, key_id(2)).await.is_err(), "an unknown action opens nothing");
    Ok(())
}
