//! What was seen of a pool after its last lease serves the next caller, as far as it still holds.

use casement_domain::pool::{AcquireInput, Acquired, LeaseFrom, Pool, TakenNow};
use casement_domain::session::Session;
use casement_domain::testing::{browser_id, leased_session, pool, pool_id, scope};
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
        let from = LeaseFrom { pool: pool_id(1), unchanged_since };
        world.line.expect_take_now().withf(move |asked, _, _| *asked == from).times(1).return_once(|_, _, _| Ok(taken));
    }
}

fn leased() -> TakenNow {
    TakenNow::Leased(Box::new(leased_session(1)))
}

async fn acquire(casement: &UseCases) -> Session {
    match casement.leases.acquire(&scope(), "warm", AcquireInput::default()).await.expect("leased") {
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
    casement.leases.look_ahead(&scope(), "warm").await;
    acquire(&casement).await;
    acquire(&casement).await;
}
