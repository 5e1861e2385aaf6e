//! A profile for one lease.

use casement_domain::UseCaseError;
use casement_domain::pool::{AcquireRequest, Acquired, ImmediateLease};
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
    world.connections.expect_restarted().return_const(());
    world.sessions.expect_set_profile().withf(|_, given| *given == loaded(true)).times(1).returning(|_, _| Ok(true));
    let of = steps.clone();
    world.engine.expect_hand_out().times(1).returning(move |_, _| {
        of.lock().push("handed out");
        Ok(())
    });
    let acquired = world.build().leases.acquire(&scope(), "warm", with_login()).await.expect("leased");
    let Acquired::Leased(session) = acquired else { panic!("a browser was idle") };
    assert_eq!(session.shape.profile, Some(loaded(true)));
    assert_eq!(*steps.lock(), ["loaded", "handed out"]);
    let undelivered = Session { state: SessionState::Ended(EndReason::Undelivered), ..*session };
    assert!(!undelivered.leaves_its_browser_untouched(), "nobody else gets the profile");
    let released = Session { state: SessionState::Ended(EndReason::Released), ..undelivered };
    assert!(released.saves_its_profile());
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
