//! What was seen of a pool after its last lease serves the next caller, as far as it still holds.

use casement_domain::audit::{EarlyFate, EarlyRecord};
use casement_domain::pool::{AcquireInput, Acquired, LeaseFrom, Pool, TakenNow};
use casement_domain::session::Session;
use casement_domain::testing::{audit_entry, browser_id, leased_session, pool, pool_id, scope};
use time::Duration;

use crate::support::{UseCases, World, hung};

/// Its sessions time out as [`leased_session`] does.
fn warm_pool() -> Pool {
    let mut pool = pool(4).name("warm").build();
    pool.config.timeout_seconds = leased_session(1).timeout_seconds;
    pool
}

/// A pool whose browser 1 is idle for longest; read so many times.
fn read(times: usize) -> World {
    let mut world = World::default();
    world.pools.expect_find_with_next().times(times).returning(|_, _| Ok(Some((warm_pool(), Some(browser_id(1))))));
    world
}

/// Answers those who ask for the pool as it was seen, and those who ask for it however it is; each once if at all.
fn leases(world: &mut World, as_seen: Option<TakenNow>, anyhow: Option<TakenNow>) {
    for (unchanged_since, taken) in [(Some(warm_pool().updated_at), as_seen), (None, anyhow)] {
        let Some(taken) = taken else { continue };
        let from = LeaseFrom { unchanged_since, ..pool_id(1).into() };
        world.line.expect_take_now().withf(move |asked, _, _| *asked == from).times(1).return_once(|_, _, _| Ok(taken));
    }
}

fn leased() -> TakenNow {
    TakenNow::Leased(Box::new(leased_session(1)))
}

/// Answers those who ask for browser 1 of the pool as it was seen, and have their call recorded with it.
fn leases_recorded(world: &mut World, taken: TakenNow) {
    let from = LeaseFrom { unchanged_since: Some(warm_pool().updated_at), ..pool_id(1).into() };
    let line = world.line.expect_take_recorded().withf(move |asked, browser, _, record, _| {
        (*asked, *browser) == (from, browser_id(1)) && *record == audit_entry(1)
    });
    line.times(1).return_once(|_, _, _, _, _| Ok(taken));
}

async fn acquire(casement: &UseCases) -> Session {
    acquire_recorded(casement, AcquireInput::default(), None).await
}

async fn acquire_recorded(casement: &UseCases, input: AcquireInput, record: Option<&EarlyRecord>) -> Session {
    match casement.leases.acquire_recorded(&scope(), "warm", input, record).await.expect("leased") {
        Acquired::Leased(session) => *session,
        _ => panic!("a browser was idle"),
    }
}

#[tokio::test]
async fn a_browser_that_has_answered_ahead_is_leased_without_a_look_at_the_pool_and_not_asked_again() {
    let mut world = read(1);
    leases(&mut world, Some(leased()), None);
    world.engine.expect_hand_out().withf(|id, _| *id == browser_id(1)).times(1).returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    assert_eq!(acquire(&casement).await, leased_session(1));
}

#[tokio::test]
async fn an_answer_from_long_ago_proves_nothing() {
    let mut world = read(1);
    leases(&mut world, Some(leased()), None);
    world.engine.expect_hand_out().times(2).returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    casement.clock.advance(Duration::SECOND);
    assert_eq!(acquire(&casement).await, leased_session(1));
}

#[tokio::test]
async fn a_browser_that_did_not_answer_ahead_is_asked_again_when_it_is_leased() {
    let mut world = read(1);
    leases(&mut world, Some(leased()), None);
    let mut answers = vec![Ok(()), Err(hung())];
    world.engine.expect_hand_out().times(2).returning(move |_, _| answers.pop().expect("twice"));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    assert_eq!(acquire(&casement).await, leased_session(1));
}

#[tokio::test]
async fn a_pool_that_has_changed_since_is_read_again() {
    let mut world = read(2);
    leases(&mut world, Some(TakenNow::Busy), Some(leased()));
    world.engine.expect_hand_out().returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    assert_eq!(acquire(&casement).await, leased_session(1));
}

#[tokio::test]
async fn what_was_seen_serves_one_caller() {
    let mut world = read(2);
    leases(&mut world, Some(leased()), Some(leased()));
    world.engine.expect_hand_out().times(2).returning(|_, _| Ok(()));
    let casement = world.build();
    assert!(!casement.leases.foresees(&scope(), "warm"));
    casement.leases.look_ahead(&scope(), "warm").await;
    assert!(casement.leases.foresees(&scope(), "warm"));
    acquire(&casement).await;
    assert!(!casement.leases.foresees(&scope(), "warm"));
    acquire(&casement).await;
}

#[tokio::test]
async fn a_call_whose_browser_has_answered_ahead_is_recorded_with_its_lease() {
    let mut world = read(1);
    leases_recorded(&mut world, leased());
    world.engine.expect_hand_out().times(1).returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    let record = EarlyRecord::new(audit_entry(1));
    assert_eq!(record.fate(), EarlyFate::Open);
    assert_eq!(acquire_recorded(&casement, AcquireInput::default(), Some(&record)).await, leased_session(1));
    assert_eq!(record.fate(), EarlyFate::Stored);
}

#[tokio::test]
async fn a_call_that_goes_the_long_way_is_not_recorded_with_its_lease() {
    let mut world = read(2);
    leases_recorded(&mut world, TakenNow::Busy);
    leases(&mut world, None, Some(leased()));
    world.engine.expect_hand_out().returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    let record = EarlyRecord::new(audit_entry(1));
    acquire_recorded(&casement, AcquireInput::default(), Some(&record)).await;
    assert_eq!(record.fate(), EarlyFate::Declined);
}

#[tokio::test]
async fn a_call_is_recorded_after_its_lease_where_something_is_still_to_be_done_that_may_fail() {
    let start = AcquireInput { start_url: Some("https://example.com/".to_owned()), ..AcquireInput::default() };
    for (later, input) in [(Duration::SECOND, AcquireInput::default()), (Duration::ZERO, start)] {
        let mut world = read(1);
        leases(&mut world, Some(leased()), None);
        world.engine.expect_hand_out().returning(|_, _| Ok(()));
        let casement = world.build();
        casement.leases.look_ahead(&scope(), "warm").await;
        casement.clock.advance(later);
        let record = EarlyRecord::new(audit_entry(1));
        acquire_recorded(&casement, input, Some(&record)).await;
        assert_eq!(record.fate(), EarlyFate::Declined);
    }
}
