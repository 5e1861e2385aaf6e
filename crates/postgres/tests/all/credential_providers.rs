//! Credential providers: their order, their names, their sealed tokens.

use casement_domain::credential_provider::{
    CredentialProvider, CredentialProviderRepository as _, ProviderChange, ProviderDeleted, ProviderPlace,
    ProviderStored, ProviderUpdated,
};
use casement_domain::name::LabelName;
use casement_domain::page::Page;
use casement_domain::sealing::{KeyId, Sealer as _};
use casement_domain::testing::{self, PlainSealer};
use casement_domain::{CredentialProviderId, OrganizationId, ProjectId};
use casement_postgres::PgCredentialProviders;
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, seconds};

const PAGE: Page = Page { limit: 100, offset: 0 };

fn id(n: u32) -> CredentialProviderId {
    CredentialProviderId::from_ulid(Ulid::from_parts(14, u128::from(n)))
}

fn name(text: &str) -> LabelName {
    LabelName::parse(text).unwrap_or_else(|bad| unreachable!("{bad}"))
}

fn server(url: &str) -> Result<ProviderPlace, Fault> {
    Ok(ProviderPlace::PasswordManager(Some(url.parse()?)))
}

fn provider(n: u32, named: &str, place: ProviderPlace) -> Result<CredentialProvider, Fault> {
    Ok(CredentialProvider {
        is_onepassword: n == 2,
        id: id(n),
        organization: testing::organization_id(),
        name: name(named),
        place,
        token: PlainSealer.seal(&CredentialProvider::seal_place(id(n)), b"word")?,
        cache_ttl_seconds: 300,
        enabled: true,
        priority: 0,
        projects: Vec::new(),
        created_at: seconds(i64::from(n)),
        updated_at: seconds(i64::from(n)),
    })
}

/// Stores three providers, with the priorities 0, 1 and 2.
async fn stored(world: &World) -> Result<PgCredentialProviders, Fault> {
    let providers = PgCredentialProviders::new(world.db.database().clone());
    let places = [server("https://connect.example/base")?, ProviderPlace::PasswordManager(None)];
    for (n, named, place) in [
        (1, "First", places[0].clone()),
        (2, "50% _off", places[1].clone()),
        (3, "File", ProviderPlace::Keepass("team".to_owned())),
    ] {
        assert_eq!(providers.create(&provider(n, named, place)?, 10).await?, ProviderStored::Yes(n - 1));
    }
    Ok(providers)
}

#[tokio::test]
async fn a_provider_is_its_organizations_alone_and_its_name_no_others() -> TestResult {
    let world = World::new().await?;
    let providers = stored(&world).await?;
    let (ours, others) = (testing::organization_id(), OrganizationId::from_ulid(Ulid::from_parts(1, 99)));
    let first = provider(1, "First", server("https://connect.example/base")?)?;
    let third = CredentialProvider { priority: 2, ..provider(3, "File", ProviderPlace::Keepass("team".to_owned()))? };
    assert_eq!(providers.find(ours, id(1)).await?, Some(first.clone()));
    assert_eq!(providers.find(ours, id(3)).await?, Some(third));
    assert_eq!(providers.named(ours, "fírst").await?, Some(first));
    assert_eq!((providers.find(others, id(1)).await?, providers.named(others, "First").await?), (None, None));
    assert_eq!(providers.delete(others, id(1)).await?, ProviderDeleted::NotFound);
    let change = ProviderChange { enabled: Some(false), ..ProviderChange::default() };
    assert_eq!(providers.update(others, id(1), &change, seconds(9)).await?, ProviderUpdated::NotFound);

    let again = provider(4, "FIRST", ProviderPlace::PasswordManager(None))?;
    assert_eq!(providers.create(&again, 10).await?, ProviderStored::NameTaken);
    let full = providers.create(&provider(4, "x", ProviderPlace::PasswordManager(None))?, 3).await?;
    assert!(matches!(full, ProviderStored::LimitExceeded(limit) if (limit.value, limit.used) == (3, 3)), "{full:?}");

    let list = async |query: Option<&str>| {
        let listed = providers.list(ours, query, PAGE).await?;
        Ok::<_, Fault>(listed.items.into_iter().map(|one| one.name.as_str().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(list(None).await?, ["First", "50% _off", "File"]);
    assert_eq!(list(Some("%")).await?, ["50% _off"]);
    assert_eq!(list(Some("FI")).await?, ["First", "File"]);
    assert_eq!(list(Some(&id(3).to_string())).await?, ["File"]);

    assert_eq!(providers.delete(ours, id(1)).await?, ProviderDeleted::Yes);
    assert_eq!(providers.delete(ours, id(1)).await?, ProviderDeleted::NotFound);
    assert_eq!(providers.find(ours, id(1)).await?, None);
    Ok(())
}

#[tokio::test]
async fn they_are_requested_by_priority_then_by_age_and_only_if_switched_on() -> TestResult {
    let world = World::new().await?;
    let providers = stored(&world).await?;
    let ours = testing::organization_id();
    let update = async |n, change: ProviderChange| providers.update(ours, id(n), &change, seconds(50)).await;
    let order = async || {
        let enabled = providers.enabled(ours).await?;
        Ok::<_, Fault>(enabled.into_iter().map(|one| one.name.as_str().to_owned()).collect::<Vec<_>>())
    };
    let priority = |priority| ProviderChange { priority: Some(priority), ..ProviderChange::default() };
    assert!(matches!(update(3, priority(0)).await?, ProviderUpdated::Yes(_)));
    assert_eq!(order().await?, ["First", "File", "50% _off"]);
    assert!(matches!(update(1, priority(1000)).await?, ProviderUpdated::Yes(_)));
    assert_eq!(order().await?, ["File", "50% _off", "First"]);
    let off = ProviderChange { enabled: Some(false), ..ProviderChange::default() };
    assert!(matches!(update(3, off).await?, ProviderUpdated::Yes(_)));
    assert_eq!(order().await?, ["50% _off", "First"]);
    let fourth = provider(4, "Fourth", ProviderPlace::PasswordManager(None))?;
    assert_eq!(providers.create(&fourth, 10).await?, ProviderStored::Yes(1000), "there is nothing behind the last");
    assert_eq!(order().await?, ["50% _off", "First", "Fourth"]);
    Ok(())
}

#[tokio::test]
async fn a_change_is_whole_or_not_at_all() -> TestResult {
    let world = World::new().await?;
    let providers = stored(&world).await?;
    let ours = testing::organization_id();
    let change = ProviderChange {
        name: Some(name("Renamed")),
        place: Some(server("http://10.0.0.9:8080/")?),
        token: Some(b"other".to_vec()),
        cache_ttl_seconds: Some(0),
        enabled: Some(false),
        priority: Some(7),
        projects: Some(vec![testing::project_id()]),
    };
    let ProviderUpdated::Yes(now) = providers.update(ours, id(2), &change, seconds(50)).await? else {
        return Err("not changed".into());
    };
    assert_eq!(Some(now.clone()), providers.find(ours, id(2)).await?.map(Box::new));
    assert_eq!((now.name.as_str(), now.place), ("Renamed", server("http://10.0.0.9:8080/")?));
    assert_eq!((now.token, now.cache_ttl_seconds, now.enabled, now.priority), (b"other".to_vec(), 0, false, 7));
    assert_eq!(now.projects, [testing::project_id()]);
    assert_eq!((now.created_at, now.updated_at), (seconds(2), seconds(50)));

    let taken = ProviderChange { name: Some(name("file")), enabled: Some(true), ..ProviderChange::default() };
    assert_eq!(providers.update(ours, id(2), &taken, seconds(60)).await?, ProviderUpdated::NameTaken);
    let after = providers.find(ours, id(2)).await?.ok_or("gone")?;
    assert_eq!((after.enabled, after.updated_at), (false, seconds(50)));
    let missing_project = ProjectId::from_ulid(Ulid::from_parts(2, 99));
    let lent =
        ProviderChange { projects: Some(vec![missing_project]), enabled: Some(true), ..ProviderChange::default() };
    assert_eq!(providers.update(ours, id(2), &lent, seconds(60)).await?, ProviderUpdated::NoProject(missing_project));
    let mut new = provider(4, "new", server("http://10.0.0.9")?)?;
    new.projects = vec![testing::project_id(), missing_project];
    assert_eq!(providers.create(&new, 9).await?, ProviderStored::NoProject(missing_project));
    assert_eq!(providers.find(ours, id(2)).await?.ok_or("gone")?.projects, [testing::project_id()]);
    let nothing = ProviderChange::default();
    assert_eq!(providers.update(ours, id(9), &nothing, seconds(60)).await?, ProviderUpdated::NotFound);
    Ok(())
}

#[tokio::test]
async fn tokens_are_found_by_their_sealing_key_and_resealed_unless_changed_meanwhile() -> TestResult {
    let world = World::new().await?;
    let providers = stored(&world).await?;
    let ours = testing::organization_id();
    let other = KeyId(*b"otherkey");
    assert_eq!(providers.keys().await?, [PlainSealer::KEY]);
    assert_eq!(providers.sealed_with_other_key(PlainSealer::KEY, 10).await?, []);
    assert_eq!(providers.sealed_with_other_key(other, 2).await?.len(), 2);
    let found = providers.sealed_with_other_key(other, 10).await?;
    assert_eq!(found.len(), 3);
    let next = [&[KeyId::FORM], other.0.as_slice(), b"x"].concat();
    providers.reseal(found[0].0, &found[0].1, &next).await?;
    providers.reseal(found[1].0, b"stale", &next).await?;
    assert_eq!(providers.find(ours, found[0].0).await?.map(|one| one.token), Some(next));
    assert_eq!(providers.sealed_with_other_key(other, 10).await?.len(), 2);
    Ok(())
}
