//! Tests of engines in requests: the choice of one, and refusals of what it cannot do, before anything is done.

use std::sync::Arc;

use casement_domain::Replaced;
use casement_domain::browser::{LocationRequest, Shape, Started};
use casement_domain::computer::{Computers, MockComputer};
use casement_domain::engine::{Capability, ConfiguredEngines, EngineDescription, EngineName};
use casement_domain::field::FieldCode;
use casement_domain::pool::{PoolRequest, PoolStored, PoolUpdateRequest};
use casement_domain::process::{MockProcessMachine, Processes};
use casement_domain::proxy::ProxySelection;
use casement_domain::reference::Reference;
use casement_domain::session::{
    CreateSessionError, Created, Session, SessionRequest, SessionUpdateRequest, UpdateSessionError, UseSessionError,
    ViewportRequest,
};
use casement_domain::session_operation::OperationError;
use casement_domain::testing::{CountingIds, pool, scope, session};
use casement_domain::{SessionId, UseCaseError};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::support::World;

fn grid() -> EngineName {
    EngineName::parse("grid").expect("a name")
}

fn both() -> Option<ConfiguredEngines> {
    let engines = vec![EngineDescription::local(), EngineDescription::webdriver(grid(), None)];
    Some(ConfiguredEngines::new(engines).expect("a set"))
}

fn only_grid() -> Option<ConfiguredEngines> {
    Some(ConfiguredEngines::new(vec![EngineDescription::webdriver(grid(), None)]).expect("a set"))
}

fn world() -> World {
    World { engines: both(), ..World::default() }
}

fn on_grid() -> SessionRequest {
    SessionRequest { engine: Some("grid".to_owned()), ..SessionRequest::default() }
}

fn grid_session() -> Session {
    Session { shape: Shape { engine: grid(), headless: true, ..Shape::default() }, ..session(1) }
}

/// A request for a session with one property that a WebDriver server lacks, and the refused field.
fn lacking() -> Vec<(&'static str, SessionRequest)> {
    let size = ViewportRequest { width: Some(800), height: Some(600), refresh_rate: Some(30) };
    let policy = json!({ "BookmarkBarEnabled": true }).as_object().cloned();
    let direct = ProxySelection { mode: Some("direct".to_owned()), ..ProxySelection::default() };
    let extension = Reference { name: Some("blocker".to_owned()), id: None };
    vec![
        ("headless", SessionRequest { headless: Some(false), ..on_grid() }),
        ("stealth", SessionRequest { stealth: Some(true), ..on_grid() }),
        ("kiosk_mode", SessionRequest { kiosk_mode: Some(true), ..on_grid() }),
        ("viewport.refresh_rate", SessionRequest { viewport: Some(size), ..on_grid() }),
        ("browser_policy", SessionRequest { browser_policy: policy, ..on_grid() }),
        ("extensions", SessionRequest { extensions: vec![extension], ..on_grid() }),
        ("proxy_id", SessionRequest { proxy: Some("exit".to_owned()), ..on_grid() }),
        ("proxy", SessionRequest { proxy_selection: Some(direct), ..on_grid() }),
        ("network", SessionRequest { network: Some(Default::default()), ..on_grid() }),
        ("location", SessionRequest { location: Some(LocationRequest::default()), ..on_grid() }),
        ("memory", SessionRequest { memory: Some("2GiB".to_owned()), ..on_grid() }),
    ]
}

#[tokio::test]
async fn what_the_engine_lacks_is_refused_by_its_field_before_anything_is_done() {
    for (field, request) in lacking() {
        // A call of any port would fail the test.
        let error = world().build().sessions.create(&scope(), request).await.expect_err(field);
        let CreateSessionError::NotSupported(refused) = error else { panic!("{field}: {error:?}") };
        assert_eq!(refused.field, field);
        assert!(refused.why.starts_with("the engine grid does not support "), "{refused}");
    }
}

#[tokio::test]
async fn an_unknown_engine_is_refused_with_the_names_of_all() {
    let request = SessionRequest { engine: Some("moon".to_owned()), timeout_seconds: Some(1), ..Default::default() };
    let error = world().build().sessions.create(&scope(), request).await.expect_err("unknown");
    let CreateSessionError::Invalid(invalid) = error else { panic!("{error:?}") };
    let fields: Vec<_> = invalid.fields().iter().map(|bad| (bad.field.as_str(), bad.code)).collect();
    assert_eq!(fields, [("engine", FieldCode::NotAllowed), ("timeout_seconds", FieldCode::OutOfRange)]);
    assert_eq!(invalid.fields()[0].message, "must be one of local, grid");
}

#[tokio::test]
async fn a_session_of_an_engine_without_displays_is_headless_and_has_no_memory_limit() {
    for (engines, request) in [(both(), on_grid()), (only_grid(), SessionRequest::default())] {
        let mut world = World { engines, ..World::default() };
        let expected = Shape { engine: grid(), headless: true, ..Shape::default() };
        let shape = expected.clone();
        world.spares.expect_take().withf(move |wanted| *wanted == shape).times(1).return_const(None);
        world.sessions.expect_create().times(1).returning(|_, _, _| Ok(Created::Yes));
        world.sessions.expect_activate().times(1).returning(|_, _, _| Ok(Replaced::Yes));
        world.engine.expect_start().times(1).returning(|_| Ok(Started::default()));
        world.engine.expect_hand_out().times(1).returning(|_, _| Ok(()));
        let made = world.build().sessions.create(&scope(), request).await.expect("created");
        assert_eq!(made.shape, expected);
    }
}

#[tokio::test]
async fn a_login_gets_an_engine_that_is_able_to_or_is_refused() {
    let mut both = world();
    both.sessions.expect_create().times(1).returning(|_, session, _| {
        assert_eq!(session.shape.engine, EngineName::LOCAL);
        Ok(Created::NameTaken)
    });
    let named = || SessionRequest { name: Some("login".to_owned()), ..SessionRequest::default() };
    let id = SessionId::from_ulid(ulid::Ulid(7));
    let error = both.build().sessions.create_as(id, &scope(), named()).await.expect_err("the name is taken");
    assert!(matches!(error, CreateSessionError::NameTaken(_)), "{error:?}");
    let grid = World { engines: only_grid(), ..World::default() };
    if EngineDescription::webdriver(self::grid(), None).check(Capability::Logins).is_err() {
        let error = grid.build().sessions.create_as(id, &scope(), named()).await.expect_err("no logins");
        assert!(matches!(error, CreateSessionError::NotSupported(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_change_that_the_engine_of_the_session_lacks_changes_nothing() {
    let size = ViewportRequest { width: Some(800), height: Some(600), refresh_rate: Some(30) };
    for (field, request) in [
        ("viewport.refresh_rate", SessionUpdateRequest { viewport: Some(size), ..Default::default() }),
        ("proxy_id", SessionUpdateRequest { proxy: Some(Some("exit".to_owned())), ..Default::default() }),
        ("location", SessionUpdateRequest { location: Some(LocationRequest::default()), ..Default::default() }),
    ] {
        let mut world = world();
        world.sessions.expect_find_in_project().times(1).returning(|_, _, _| Ok(Some(grid_session())));
        let id = session(1).id.to_string();
        let error = world.build().sessions.update(&scope(), &id, request).await.expect_err(field);
        let UpdateSessionError::NotSupported(refused) = error else { panic!("{field}: {error:?}") };
        assert_eq!(refused.field, field);
    }
}

#[tokio::test]
async fn an_operation_that_the_engine_lacks_reaches_no_browser() {
    let casement = world().build();
    let operations = casement.sessions.operations();
    let processes =
        Processes::new(Arc::new(MockProcessMachine::new()), operations.clone(), Arc::new(CountingIds::default()));
    let id = processes.status(&grid_session(), &ulid::Ulid(1).to_string()).await;
    let Err(OperationError::NotSupported(why)) = id else { panic!("{id:?}") };
    assert_eq!(why, "the engine grid does not support processes: nothing runs beside the browser");
    let computers = Computers::new(Arc::new(MockComputer::new()), operations);
    let read = computers.read_clipboard(&grid_session()).await;
    assert!(matches!(read, Err(OperationError::NotSupported(_))), "{read:?}");
    assert_eq!(casement.sessions.check_engine(&grid_session(), Capability::Cdp), Ok(()));
}

#[tokio::test]
async fn a_session_of_an_engine_that_is_gone_can_do_nothing() {
    let casement = World::default().build();
    let shot = casement.sessions.screenshot(&grid_session(), |_| Ok(None)).await.expect_err("no engine");
    assert!(matches!(shot, UseSessionError::EngineRefused(_)), "{shot:?}");
}

fn four_on_grid() -> PoolRequest {
    PoolRequest { size: Some(4), engine: Some("grid".to_owned()), ..PoolRequest::default() }
}

#[tokio::test]
async fn a_pool_is_refused_what_its_engine_lacks() {
    let request = PoolRequest { stealth: Some(true), ..four_on_grid() };
    let error = world().build().pools.create(&scope(), request).await.expect_err("no stealth");
    assert!(matches!(&error, UseCaseError::NotSupported(refused) if refused.field == "stealth"), "{error:?}");
    let mut world = world();
    world.pools.expect_create().times(1).returning(|_, _, _| Ok(PoolStored::Yes));
    world.wake.expect_wake().return_const(());
    let (pool, _) = world.build().pools.create(&scope(), four_on_grid()).await.expect("created");
    assert_eq!(pool.config.shape, Shape { engine: grid(), headless: true, ..Shape::default() });
}

#[tokio::test]
async fn a_pool_that_moves_to_another_engine_discards_its_idle_browsers() {
    let mut world = world();
    world.pools.expect_find().times(1).returning(|_, _| Ok(Some(pool(2).build())));
    world.pools.expect_replace().times(1).returning(|_, _, next, discards| {
        assert_eq!((next.config.shape.engine.as_str(), discards), ("grid", true));
        Ok((PoolStored::Yes, Vec::new()))
    });
    world.pools.expect_counts().returning(|_| Ok(Default::default()));
    world.wake.expect_wake().return_const(());
    let input = PoolRequest { engine: Some("grid".to_owned()), ..PoolRequest::default() };
    let update = PoolUpdateRequest { input, ..PoolUpdateRequest::default() };
    world.build().pools.update(&scope(), "warm", update).await.expect("changed");
}

#[tokio::test]
async fn a_pool_moves_to_no_engine_that_lacks_what_it_has() {
    let mut world = world();
    world.pools.expect_find().times(1).returning(|_, _| {
        let mut found = pool(2).build();
        found.config.shape.stealth = true;
        Ok(Some(found))
    });
    let input = PoolRequest { engine: Some("grid".to_owned()), ..PoolRequest::default() };
    let update = PoolUpdateRequest { input, ..PoolUpdateRequest::default() };
    let error = world.build().pools.update(&scope(), "warm", update).await.expect_err("stealth");
    assert!(matches!(&error, UseCaseError::NotSupported(refused) if refused.field == "stealth"), "{error:?}");
}
