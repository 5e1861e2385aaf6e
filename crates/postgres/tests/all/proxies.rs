//! Proxies: names, limits, checks, and the references that prevent a deletion.

use casement_domain::browser::{Browser, BrowserRepository as _};
use casement_domain::network::{
    Allowlist, AllowlistChange, AllowlistError, Condition, Destination, Network, PrivateHost, PrivateHosts, ProxyRoute,
};
use casement_domain::page::Page;
use casement_domain::pool::{ImmediateLease, Pool, PoolRepository as _, PoolStored, WaitQueue as _};
use casement_domain::project::{ProjectDeleted, ProjectRepository as _};
use casement_domain::proxy::{
    Exit, Proxy, ProxyChecked, ProxyConfig, ProxyDeleted, ProxyFailure, ProxyFilter, ProxyRepository as _, ProxyStatus,
    ProxyStored, ProxyType,
};
use casement_domain::sealing::{KeyId, Sealer as _};
use casement_domain::session::SessionRepository as _;
use casement_domain::testing::{self, NOON, PlainSealer};
use casement_domain::{ProjectId, ProxyId, Replaced, StoreError};
use casement_postgres::{PgProjects, PgProxies};
use pretty_assertions::assert_eq;
use time::Duration;
use ulid::Ulid;

use crate::support::{Held, TestResult};
use crate::world::{Fault, World, lease, seconds, warming};

fn id(n: u32) -> ProxyId {
    ProxyId::from_ulid(Ulid::from_parts(12, u128::from(n)))
}

fn proxy(n: u32, name: &str) -> Proxy {
    Proxy {
        config: testing::own_proxy(&format!("p{n}.example"), PlainSealer.seal(&Proxy::place(id(n)), b"word").ok()),
        created_at: seconds(i64::from(n)),
        ..testing::proxy(id(n), name)
    }
}

async fn stored(world: &World) -> Result<PgProxies, Fault> {
    let proxies = PgProxies::new(world.db.database().clone());
    for (n, name) in [(1, "Exit"), (2, "other"), (3, "éxit")] {
        assert_eq!(proxies.create(&proxy(n, name), 10).await?, ProxyStored::Yes);
    }
    Ok(proxies)
}

#[tokio::test]
async fn a_value_that_the_domain_refuses_is_reported_with_the_name_of_its_column() -> TestResult {
    let world = World::new().await?;
    let proxies = stored(&world).await?;
    Held::begin(&world.db, "UPDATE proxies SET name = '..'").await?.commit().await?;
    let broken = proxies.find(testing::project_id(), id(1)).await.expect_err("no name is called so");
    let StoreError::Broken { operation, source } = broken else { panic!("it is not as good as absent: {broken:?}") };
    let report = source.to_string();
    assert_eq!(operation, "proxy.find");
    assert!(report.starts_with("invalid value in column name: "), "{report}");
    Ok(())
}

#[tokio::test]
async fn a_proxy_is_found_in_its_project_alone_and_several_may_bear_a_name() -> TestResult {
    let world = World::new().await?;
    let proxies = stored(&world).await?;
    let (ours, others) = (testing::project_id(), ProjectId::from_ulid(Ulid::from_parts(1, 99)));
    assert_eq!(proxies.find(ours, id(1)).await?, Some(proxy(1, "Exit")));
    assert_eq!(proxies.find(others, id(1)).await?, None);
    assert_eq!(proxies.named(ours, "EXIT").await?.len(), 2);
    assert_eq!(proxies.named(ours, "Other").await?, [proxy(2, "other")]);
    assert_eq!(proxies.named(others, "exit").await?, []);
    assert_eq!(proxies.create(&Proxy { project: others, ..proxy(9, "x") }, 10).await?, ProxyStored::ProjectGone);
    let refused = proxies.create(&proxy(4, "x"), 3).await?;
    assert!(matches!(refused, ProxyStored::LimitExceeded(limit) if limit.used == 3), "{refused:?}");

    let list = async |name: Option<&str>, query: Option<&str>, limit| {
        let filter = ProxyFilter { name: name.map(str::to_owned), query: query.map(str::to_owned) };
        let listed = proxies.list(ours, &filter, Page { limit, offset: 0 }).await?;
        Ok::<_, Fault>((listed.items.iter().map(|one| one.id).collect::<Vec<_>>(), listed.next_offset))
    };
    assert_eq!(list(None, None, 2).await?, (vec![id(3), id(2)], Some(2)));
    assert_eq!(list(Some("exit"), None, 20).await?.0, [id(3), id(1)]);
    assert_eq!(list(None, Some("P2.EXAMPLE"), 20).await?.0, [id(2)]);
    assert_eq!(list(None, Some("%"), 20).await?.0, []);

    let name = casement_domain::name::LabelName::parse("Other").map_err(|bad| bad.to_string())?;
    assert_eq!(proxies.rename(others, id(1), &name).await?, None);
    assert_eq!(proxies.rename(ours, id(1), &name).await?.and_then(|proxy| proxy.name), Some(name));
    Ok(())
}

#[tokio::test]
async fn a_check_is_noted_never_backwards_and_taken_on_by_one_server() -> TestResult {
    let world = World::new().await?;
    let proxies = stored(&world).await?;
    let found = |at, status, address: Option<&str>| ProxyChecked {
        status,
        failure: (status == ProxyStatus::Unavailable).then_some(ProxyFailure::Reset),
        ip_address: address.map(str::to_owned),
        at,
    };
    let good = found(seconds(60), ProxyStatus::Available, Some("198.51.100.7"));
    let noted = proxies.checked(id(1), &good).await?.ok_or("gone")?;
    assert_eq!((noted.last_checked, noted.ip_address.as_deref()), (Some(seconds(60)), Some("198.51.100.7")));
    assert_eq!(noted.failure, None);
    let bad = found(seconds(90), ProxyStatus::Unavailable, None);
    let noted = proxies.checked(id(1), &bad).await?.ok_or("gone")?;
    assert_eq!((noted.status, noted.ip_address.as_deref()), (ProxyStatus::Unavailable, Some("198.51.100.7")));
    assert_eq!(noted.failure, Some(ProxyFailure::Reset));
    let noted = proxies.checked(id(1), &good).await?.ok_or("gone")?;
    assert_eq!((noted.status, noted.last_checked), (ProxyStatus::Unavailable, Some(seconds(90))));

    let (before, now) = (NOON + Duration::minutes(1), NOON + Duration::minutes(11));
    let (one, two) = (proxies.due(before, now, 2), proxies.due(before, now, 2));
    let (one, two) = tokio::join!(one, two);
    let mut taken: Vec<_> = one?.into_iter().chain(two?).map(|proxy| proxy.id).collect();
    taken.extend(proxies.due(before, now, 10).await?.into_iter().map(|proxy| proxy.id));
    taken.sort();
    assert_eq!(taken, [id(1), id(2), id(3)]);
    Ok(())
}

#[tokio::test]
async fn a_rented_proxy_is_stored_with_where_it_comes_out_and_without_a_host() -> TestResult {
    let world = World::new().await?;
    let proxies = stored(&world).await?;
    let given = |text: &str| Some(text.to_owned());
    let exit = Exit { country: given("FR"), city: given("paris"), os: given("macos"), ..Exit::default() };
    for (n, kind, exit) in [(7, ProxyType::Residential, exit), (8, ProxyType::Mobile, Exit::default())] {
        let rented = Proxy { kind, config: ProxyConfig::Rented(exit), ..proxy(n, "rented") };
        assert_eq!(proxies.create(&rented, 10).await?, ProxyStored::Yes);
        assert_eq!(proxies.find(testing::project_id(), id(n)).await?, Some(rented));
    }
    let filter = ProxyFilter { name: None, query: Some("RENTED".to_owned()) };
    let page = Page { limit: 20, offset: 0 };
    let listed = proxies.list(testing::project_id(), &filter, page).await?;
    assert_eq!(listed.items.iter().map(|proxy| proxy.id).collect::<Vec<_>>(), [id(8), id(7)]);
    assert_eq!(proxies.sealed_with_other_key(KeyId(*b"new-key!"), 10).await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn passwords_are_found_by_the_key_that_they_are_sealed_under() -> TestResult {
    let world = World::new().await?;
    let proxies = stored(&world).await?;
    assert_eq!(proxies.keys().await?, [PlainSealer::KEY]);
    assert_eq!(proxies.sealed_with_other_key(PlainSealer::KEY, 10).await?, []);
    let old = proxies.sealed_with_other_key(KeyId(*b"new-key!"), 2).await?;
    assert_eq!(old.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1), id(2)]);
    let (first, sealed) = &old[0];
    let next = [&[KeyId::FORM], b"new-key!".as_slice(), b"rest"].concat();
    proxies.reseal(*first, b"something else", &next).await?;
    let password = async || match proxies.find_any(*first).await.ok()??.config {
        ProxyConfig::Own(own) => own.password,
        ProxyConfig::Rented(_) => None,
    };
    assert_eq!(password().await.as_ref(), Some(sealed));
    proxies.reseal(*first, sealed, &next).await?;
    assert_eq!(password().await, Some(next));
    assert_eq!(proxies.sealed_with_other_key(KeyId(*b"new-key!"), 10).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_pool_holds_on_to_its_proxy_and_a_session_keeps_a_deleted_one() -> TestResult {
    let world = World::new().await?;
    let proxies = stored(&world).await?;
    let (ours, mut pool) = (testing::project_id(), testing::pool(1).build());
    pool.config.shape.proxy = Some(id(9));
    let store = async |pool: &Pool| world.pools.create(testing::organization_id(), pool, 100).await;
    assert_eq!(store(&pool).await?, PoolStored::ProxyGone);
    pool.config.shape.proxy = Some(id(1));
    assert_eq!(store(&pool).await?, PoolStored::Yes);
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(pool.clone()));
    assert_eq!(proxies.delete(ours, id(1), NOON).await?, ProxyDeleted::InUse);

    let browser = Browser { shape: pool.config.shape.clone(), ..warming(1) };
    assert_eq!(world.pools.warm(&browser, pool.generation).await?, Replaced::Yes);
    assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    let ImmediateLease::Leased(session) = world.wait_queue.take_now(pool.id, &lease(1), NOON).await? else {
        return Err("a browser was idle".into());
    };
    assert_eq!(session.shape.proxy, Some(id(1)));
    assert!(world.sessions.set_proxy(session.id, Some(id(2))).await?);
    assert_eq!(world.sessions.find(session.id).await?.and_then(|found| found.shape.proxy), Some(id(2)));

    assert_eq!(proxies.delete(ours, id(2), NOON).await?, ProxyDeleted::Yes);
    assert_eq!(proxies.delete(ours, id(2), NOON).await?, ProxyDeleted::NotFound);
    assert_eq!(proxies.find(ours, id(2)).await?, None);
    assert_eq!(proxies.find_any(id(2)).await?, Some(proxy(2, "other")));

    let projects = PgProjects::new(world.db.database().clone());
    let deleted = projects.delete(testing::organization_id(), ours, NOON).await?;
    let ProjectDeleted::InUse(found) = deleted else { return Err("it has resources".into()) };
    assert!(found.iter().any(|found| (found.kind, found.count) == ("proxies", 2)), "{found:?}");
    Ok(())
}

#[tokio::test]
async fn a_network_configuration_goes_from_the_pool_to_its_leases_and_changes_there() -> TestResult {
    let world = World::new().await?;
    let proxies = stored(&world).await?;
    let (ours, mut pool) = (testing::project_id(), testing::pool(1).build());
    let allowed = |text: &str| Destination::parse_allowed(text).map_err(|bad| bad.message);
    let network = Network {
        allowlist: Some(Allowlist::new(vec![
            allowed("*.a.example")?,
            allowed("8.8.8.0/24")?,
            allowed("[2606:4700::1]")?,
        ])),
        private_hosts: Some(PrivateHosts {
            project: ours,
            hosts: vec!["10.0.0.1:80", "*.corp.internal"]
                .into_iter()
                .map(PrivateHost::parse)
                .collect::<Result<_, _>>()
                .map_err(|bad| bad.message)?,
        }),
        proxy_routes: Some(vec![ProxyRoute { hosts: vec![allowed("b.example")?], proxy: id(1) }]),
    };
    let gone = ProxyRoute { hosts: vec![allowed("c.example")?], proxy: id(9) };
    let routes = network.proxy_routes.iter().flatten().cloned().chain([gone]).collect();
    pool.config.shape.network = Some(Network { proxy_routes: Some(routes), ..network.clone() });
    pool.config.shape.proxy = Some(id(2));
    assert_eq!(world.pools.create(testing::organization_id(), &pool, 100).await?, PoolStored::ProxyGone);
    pool.config.shape.network = Some(network.clone());
    assert_eq!(world.pools.create(testing::organization_id(), &pool, 100).await?, PoolStored::Yes);
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(pool.clone()));
    assert_eq!(proxies.delete(ours, id(1), NOON).await?, ProxyDeleted::InUse);

    let browser = Browser { shape: pool.config.shape.clone(), ..warming(1) };
    assert_eq!(world.pools.warm(&browser, pool.generation).await?, Replaced::Yes);
    assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    let ImmediateLease::Leased(session) = world.wait_queue.take_now(pool.id, &lease(1), NOON).await? else {
        return Err("a browser was idle".into());
    };
    assert_eq!(session.shape.network, Some(network.clone()));
    let condition = Condition { revision: "1".to_owned(), mutation_id: "m".to_owned() };
    let change = AllowlistChange { hosts: None, condition: Some(condition) };
    let changed = world.sessions.change_allowlist(session.id, &change).await?.ok_or("it is active")??;
    assert_eq!(changed.allowlist.as_ref().map(|list| (list.revision, list.hosts.clone())), Some((2, None)));
    let found = world.sessions.find(session.id).await?.ok_or("there")?;
    assert_eq!(found.shape.network, Some(changed.clone()));
    let found = world.browsers.find(browser.id).await?.ok_or("there")?;
    assert_eq!(found.shape.network, Some(changed));
    let other = AllowlistChange { hosts: None, condition: None };
    let refused = world.sessions.change_allowlist(session.id, &other).await?.ok_or("it is active")?;
    assert_eq!(refused, Err(AllowlistError::NoAllowlist));
    assert_eq!(world.sessions.change_allowlist(testing::session_id(9), &other).await?, None);
    Ok(())
}
