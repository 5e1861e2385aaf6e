//! A profile for one lease.

use casement_domain::UseCaseError;
use casement_domain::pool::{AcquireRequest, Acquired, ImmediateLease, MockWaiter, QueueEntered, TicketOutcome};
use casement_domain::testing::leased_session;

use super::*;

fn with_login() -> AcquireRequest {
    AcquireRequest { profile: Some(request("login", true)), ..AcquireRequest::default() }
}

/// Returns a world with a pool that has one idle browser.
fn one_idle(ports: Ports) -> World {
    let mut world = World { profiles: Some(ports.build()), ..World::default() };
    world.has_pool(pool(1).name("warm").build());
    let mut idle = Some(leased_session(1));
    world.wait_queue.expect_take_now().returning(move |_, _, _| {
        Ok(idle.take().map_or(ImmediateLease::Busy, |session| ImmediateLease::Leased(Box::new(session))))
    });
    world
}

fn stored_version(ports: &mut Ports) {
    ports.rows.expect_version().returning(|profile, id| {
        let key = PlainSealer::stream_key(&ProfileVersion::place(profile, id));
        Ok(Some(ProfileVersion { id, profile, session: session_id(9), based_on: None, key, created_at: NOON }))
    });
    ports.blobs.expect_get().returning(|_| Ok(Some(bytes("state"))));
}

#[tokio::test]
async fn a_lease_loads_its_profile_before_the_browser_is_handed_out() {
    let mut ports = Ports::with_profile();
    stored_version(&mut ports);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let of = steps.clone();
    ports.machine.expect_load().times(1).returning(move |browser, _| {
        of.lock().push("loaded");
        assert_eq!(browser, browser_id(1));
        Ok(())
    });
    ports.rows.expect_used().times(1).returning(|_, _| Ok(()));
    let mut world = one_idle(ports);
    let rows = world.keep_sessions([leased_session(1)]);
    world.connections.expect_restarted().return_const(());
    world.sessions.expect_set_profile().withf(|_, given| *given == loaded(true)).times(1).returning(|_, _| Ok(true));
    let of = steps.clone();
    world.engine.expect_hand_out().times(1).returning(move |_, _| {
        of.lock().push("handed out");
        Ok(())
    });
    world.expect_cleanup(browser_id(1));
    world.expect_close(session_id(1), EndReason::StartFailed);
    world.wake.expect_wake().return_const(());
    let casement = world.build();
    let acquired = casement.leases.acquire(&scope(), "warm", with_login()).await.expect("leased");
    let Acquired::Leased(session) = acquired else { panic!("a browser was idle") };
    assert_eq!(session.shape.profile, Some(loaded(true)));
    assert_eq!(*steps.lock(), ["loaded", "handed out"]);
    let released = Session { state: SessionState::Ended(EndReason::Released), ..(*session).clone() };
    assert!(released.saves_its_profile());
    // Nobody else gets the profile, also if the response is lost.
    casement.leases.undelivered(&session).await.expect("ended");
    let ended = rows.get(session.id).expect("stored");
    assert_eq!(ended.state, SessionState::Ended(EndReason::StartFailed));
    assert!(!ended.leaves_its_browser_untouched());
}

#[test]
fn an_undelivered_lease_of_a_pool_with_a_profile_leaves_its_browser_untouched() {
    let mut undelivered = Session { state: SessionState::Ended(EndReason::Undelivered), ..leased_session(1) };
    undelivered.shape.profile = Some(loaded(false));
    assert!(undelivered.leaves_its_browser_untouched(), "the next lease gets the same profile");
}

/// Returns the session of the n-th attempt, on a browser of its own.
fn attempt(n: u32) -> Session {
    Session { browser: Some(browser_id(n)), ..leased_session(n) }
}

/// Expects that the profile is not loaded into the first two browsers, which end.
fn loads_into_neither(ports: &mut Ports) {
    stored_version(ports);
    ports.machine.expect_load().times(2).returning(|_, _| Err(OperationError::Timeout { seconds: 60 }));
}

fn ends_both(world: &mut World) -> crate::support::Rows {
    world.connections.expect_restarted().return_const(());
    world.connections.expect_close().return_const(());
    world.wake.expect_wake().return_const(());
    for n in 1..=2 {
        world.expect_cleanup(browser_id(n));
    }
    world.keep_sessions([attempt(1), attempt(2)])
}

fn refuses_the_profile(acquired: Result<Acquired, UseCaseError>) {
    let Err(UseCaseError::Invalid(invalid)) = acquired else { panic!("no browser loads it") };
    assert_eq!((&*invalid.fields()[0].field, invalid.fields()[0].code), ("profile", FieldCode::NotAllowed));
}

#[tokio::test]
async fn a_profile_that_no_browser_loads_costs_two_idle_browsers() {
    let mut ports = Ports::with_profile();
    loads_into_neither(&mut ports);
    let mut world = World { profiles: Some(ports.build()), ..World::default() };
    world.has_pool(pool(4).name("warm").build());
    let mut n = 0;
    world.wait_queue.expect_take_now().times(2).returning(move |_, _, _| {
        n += 1;
        Ok(ImmediateLease::Leased(Box::new(attempt(n))))
    });
    let rows = ends_both(&mut world);
    refuses_the_profile(world.build().leases.acquire(&scope(), "warm", with_login()).await);
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed); 2]);
}

#[tokio::test]
async fn a_profile_that_no_browser_loads_ends_the_wait_for_one() {
    let mut ports = Ports::with_profile();
    loads_into_neither(&mut ports);
    let mut world = World { profiles: Some(ports.build()), ..World::default() };
    world.has_pool(pool(4).name("warm").build());
    let mut idle = Some(attempt(1));
    world.wait_queue.expect_take_now().returning(move |_, _, _| {
        Ok(idle.take().map_or(ImmediateLease::Busy, |session| ImmediateLease::Leased(Box::new(session))))
    });
    world.tickets.expect_expect().returning(|_| Box::new(MockWaiter::new()));
    world.wait_queue.expect_enter().times(1).returning(|_, _| Ok(QueueEntered::Yes(1)));
    world.wait_queue.expect_outcome().times(1).returning(|_| Ok(TicketOutcome::Granted(Box::new(attempt(2)))));
    let rows = ends_both(&mut world);
    let casement = world.build();
    let Ok(Acquired::Waiting(mut waiting)) = casement.leases.acquire(&scope(), "warm", with_login()).await else {
        panic!("the second browser may load it");
    };
    refuses_the_profile(casement.leases.wait(&mut waiting).await);
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed); 2]);
}

#[tokio::test]
async fn a_damaged_profile_of_a_lease_is_an_error_and_costs_one_browser() {
    let mut ports = Ports::with_profile();
    stored_version(&mut ports);
    let damaged = || OperationError::Engine(EngineError::Profile("it is damaged".to_owned()));
    ports.machine.expect_load().times(1).returning(move |_, _| Err(damaged()));
    let mut world = one_idle(ports);
    world.connections.expect_restarted().return_const(());
    world.connections.expect_close().return_const(());
    let _rows = world.keep_sessions([leased_session(1)]);
    world.expect_cleanup(browser_id(1));
    world.wake.expect_wake().return_const(());
    let error = match world.build().leases.acquire(&scope(), "warm", with_login()).await {
        Err(error) => error,
        Ok(_) => panic!("it cannot be loaded"),
    };
    let UseCaseError::Invalid(invalid) = error else { panic!("{error:?}") };
    assert_eq!((&*invalid.fields()[0].field, invalid.fields()[0].code), ("profile", FieldCode::NotAllowed));
}

#[tokio::test]
async fn a_pool_with_a_profile_and_a_missing_profile_refuse_before_the_lease() {
    let mut own = pool(1).name("warm").build();
    own.config.shape.profile = Some(LoadedProfile { version: None, ..loaded(false) });
    let mut missing = Ports::default();
    missing.rows.expect_find().returning(|_, _| Ok(None));
    for (pool, ports, code) in [
        (own, Ports::with_profile(), FieldCode::MutuallyExclusive),
        (pool(1).name("warm").build(), missing, FieldCode::ReferenceNotFound),
    ] {
        let mut world = World { profiles: Some(ports.build()), ..World::default() };
        world.has_pool(pool);
        let error = match world.build().leases.acquire(&scope(), "warm", with_login()).await {
            Err(error) => error,
            Ok(_) => panic!("refused"),
        };
        let UseCaseError::Invalid(invalid) = error else { panic!("{error:?}") };
        assert_eq!((&*invalid.fields()[0].field, invalid.fields()[0].code), ("profile", code));
    }
}
