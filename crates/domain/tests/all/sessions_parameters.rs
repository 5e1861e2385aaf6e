//! Tests of the memory and the location of sessions and pools.

use std::sync::Arc;

use casement_domain::browser::{
    EngineError, Locale, Location, LocationRequest, Memory, ReservedMemory, Shape, Started, TimeZone,
};
use casement_domain::pool::{PoolCounts, PoolRequest, PoolStored, PoolUpdateRequest};
use casement_domain::session::{
    CreateSessionError, Created, Session, SessionRequest, SessionUpdateRequest, UpdateSessionError, UseSessionError,
};
use casement_domain::testing::{browser_id, pool, scope, session, session_id};
use casement_domain::{Replaced, UseCaseError};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;

use crate::support::{World, hung};

fn sized(memory: &str) -> SessionRequest {
    SessionRequest { memory: Some(memory.to_owned()), ..SessionRequest::default() }
}

fn location(zone: Option<&str>, locale: Option<&str>) -> Location {
    Location {
        time_zone: zone.map(|zone| TimeZone::parse(zone).expect("a time zone")),
        locale: locale.map(|locale| Locale::parse(locale).expect("a locale")),
    }
}

#[tokio::test]
async fn a_session_of_another_size_takes_no_spare_of_the_default_and_as_many_places() {
    let mut world = World::default();
    let _rows = world.keep_new_sessions();
    let large = ReservedMemory { limit: Memory { mib: 8192 }, places: 4 };
    world.spares.expect_take().withf(move |shape| shape.memory == Some(large)).times(1).return_const(None);
    world
        .engine
        .expect_start()
        .withf(move |launch| launch.shape.memory == Some(large))
        .times(1)
        .returning(|_| Ok(Started::default()));
    world.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    world.engine.expect_hand_out().returning(|_, _| Ok(()));
    let session = world.build().sessions.create(&scope(), sized("8GiB")).await.expect("created");
    assert_eq!(session.shape.places(), 4);
}

#[tokio::test]
async fn a_location_is_part_of_the_shape_so_that_no_spare_fits() {
    let mut world = World::default();
    let _rows = world.keep_new_sessions();
    let swiss = location(Some("Europe/Zurich"), Some("de-CH"));
    world.spares.expect_take().withf(move |shape| shape.location == swiss).times(1).return_const(None);
    world
        .engine
        .expect_start()
        .withf(move |launch| launch.shape.location == swiss)
        .times(1)
        .returning(|_| Err(EngineError::Location("no files".to_owned())));
    world.engine.expect_end().returning(|_| Ok(()));
    world.connections.expect_close().return_const(());
    let requested =
        LocationRequest { time_zone: Some(Some("europe/zurich".to_owned())), locale: Some(Some("de-ch".to_owned())) };
    let request = SessionRequest { location: Some(requested), ..SessionRequest::default() };
    let error = world.build().sessions.create(&scope(), request).await.expect_err("refused");
    assert!(matches!(error, CreateSessionError::Specific(_)), "{error:?}");
}

#[tokio::test]
async fn a_pool_without_memory_follows_the_default_and_another_size_ends_idle_browsers() {
    for (memory, expected, flushes) in [
        (None, None, false),
        (Some("2GiB"), Some(ReservedMemory { limit: Memory { mib: 2048 }, places: 1 }), false),
        (Some("4GiB"), Some(ReservedMemory { limit: Memory { mib: 4096 }, places: 2 }), true),
    ] {
        let mut world = World::default();
        world.has_pool(pool(4).name("warm").build());
        world
            .pools
            .expect_replace()
            .withf(move |_, _, next, discards| next.config.shape.memory == expected && *discards == flushes)
            .times(1)
            .returning(|_, _, _, _| Ok((PoolStored::Yes, Vec::new())));
        world.pools.expect_counts().returning(|_| Ok(PoolCounts::default()));
        world.wake.expect_wake().return_const(());
        let input = PoolRequest { memory: memory.map(str::to_owned), ..PoolRequest::default() };
        let update = PoolUpdateRequest { input, ..PoolUpdateRequest::default() };
        let (changed, _) = world.build().pools.update(&scope(), "warm", update).await.expect("changed");
        assert_eq!(changed.config.places(), 4 * changed.config.shape.places(), "{memory:?}");
    }
}

#[tokio::test]
async fn a_size_that_is_no_size_touches_no_port() {
    let error = World::default().build().sessions.create(&scope(), sized("6GiB")).await.expect_err("refused");
    assert!(matches!(error, CreateSessionError::Invalid(_)), "{error:?}");
    let input = PoolRequest { size: Some(1), memory: Some("32GiB".to_owned()), ..PoolRequest::default() };
    let error = World::default().build().pools.create(&scope(), input).await.expect_err("refused");
    assert!(matches!(error, UseCaseError::Invalid(_)), "{error:?}");
}

/// Returns a world with a session in Zurich, and the steps of its changes.
fn in_zurich() -> (World, Arc<Mutex<Vec<String>>>) {
    let mut world = World::default();
    world.sessions.expect_find_in_project().returning(|_, _, _| {
        let shape = Shape { location: location(Some("Europe/Zurich"), Some("de-CH")), ..session(1).shape };
        Ok(Some(Session { shape, ..session(1) }))
    });
    world.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
    let steps = Arc::new(Mutex::new(Vec::new()));
    let of = steps.clone();
    world.sessions.expect_set_location().returning(move |id, location| {
        of.lock().push(format!("stored {} of {}", location.time_zone.is_some(), id == session_id(1)));
        Ok(true)
    });
    let of = steps.clone();
    world.connections.expect_restarted().returning(move |_| of.lock().push("connections".to_owned()));
    let of = steps.clone();
    world.engine.expect_hand_out().returning(move |_, to| {
        of.lock().push(format!("opened {}", to.start_url.is_some()));
        Ok(())
    });
    (world, steps)
}

fn back_to_the_default_zone() -> SessionUpdateRequest {
    let requested = LocationRequest { time_zone: Some(None), locale: None };
    SessionUpdateRequest {
        location: Some(requested),
        start_url: Some("https://x.test/".to_owned()),
        ..SessionUpdateRequest::default()
    }
}

#[tokio::test]
async fn another_location_is_stored_then_applied_and_then_the_url_is_opened() {
    let (mut world, steps) = in_zurich();
    let expected = location(None, Some("de-CH"));
    world.engine.expect_has_location().returning(|_, _| Ok(false));
    let of = steps.clone();
    world
        .engine
        .expect_restart_with_location()
        .withf(move |id, location| (*id, *location) == (browser_id(1), expected))
        .times(1)
        .returning(move |_, _| {
            of.lock().push("restarted".to_owned());
            Ok(())
        });
    world.build().sessions.update(&scope(), "one", back_to_the_default_zone()).await.expect("changed");
    assert_eq!(*steps.lock(), ["stored false of true", "connections", "restarted", "connections", "opened true"]);
}

#[tokio::test]
async fn a_location_that_the_browser_has_already_restarts_nothing() {
    let (mut world, steps) = in_zurich();
    world.engine.expect_has_location().returning(|_, _| Ok(true));
    world.build().sessions.update(&scope(), "one", back_to_the_default_zone()).await.expect("changed");
    assert_eq!(*steps.lock(), ["stored false of true", "opened true"]);
}

#[tokio::test]
async fn a_browser_that_cannot_move_refuses_before_anything_changes() {
    let (mut world, steps) = in_zurich();
    world.engine.expect_has_location().returning(|_, _| Err(EngineError::Location("too old".to_owned())));
    let error = world.build().sessions.update(&scope(), "one", back_to_the_default_zone()).await.expect_err("refused");
    let refused = matches!(error, UpdateSessionError::Use(UseSessionError::Engine(EngineError::Location(_))));
    assert!(refused, "{error:?}");
    assert_eq!(*steps.lock(), Vec::<String>::new());
}

#[tokio::test]
async fn a_location_that_fails_to_apply_stays_stored_and_opens_no_url() {
    let (mut world, steps) = in_zurich();
    world.engine.expect_has_location().returning(|_, _| Ok(false));
    world.engine.expect_restart_with_location().times(1).returning(|_, _| Err(hung()));
    world.build().sessions.update(&scope(), "one", back_to_the_default_zone()).await.expect_err("it hangs");
    assert_eq!(*steps.lock(), ["stored false of true", "connections", "connections"]);
}
