//! Tests of the next-browser cache: the next lease uses the cached state of the pool if it is still valid.

use std::sync::Arc;

use casement_domain::audit::{MockAuditTrail, PreparedRecord, PreparedRecordOutcome, RecordTimestamp};
use casement_domain::network::{Allowlist, Destination, Network};
use casement_domain::pool::{AcquireRequest, Acquired, ImmediateLease, KnownBrowser, Pool};
use casement_domain::session::{EndReason, Session, SessionState};
use casement_domain::testing::{audit_entry, browser_id, leased_session, pool, pool_id, scope};
use casement_domain::{StoreError, UseCaseError};
use mockall::Sequence;

use crate::support::{UseCases, World, hung};

/// Returns a pool whose sessions have the idle timeout of [`leased_session`].
fn warm_pool() -> Pool {
    let mut pool = pool(4).name("warm").build();
    pool.config.timeout_seconds = leased_session(1).timeout_seconds;
    pool
}

/// Returns a world with a pool whose next browser is browser 1. Expects that it is read this number of times.
fn read(times: usize) -> World {
    let mut world = World::default();
    world.pools.expect_find_with_next().times(times).returning(|_, _, _| Ok(Some((warm_pool(), Some(browser_id(1))))));
    world.pools.expect_find().returning(|_, _| Ok(Some(warm_pool())));
    world
}

/// Expects one lease of the pool in any state.
fn leases(world: &mut World, taken: ImmediateLease) {
    let expected = world.wait_queue.expect_take_now().withf(|pool, _, _| *pool == pool_id(1));
    expected.times(1).return_once(|_, _, _| Ok(taken));
}

fn leased() -> ImmediateLease {
    ImmediateLease::Leased(Box::new(leased_session(1)))
}

/// Expects one lease of browser 1 of the unchanged pool that stores the audit record in the same transaction.
fn leases_recorded(world: &mut World, taken: ImmediateLease) {
    let next = KnownBrowser { browser: browser_id(1), pool: pool_id(1), unchanged_since: warm_pool().updated_at };
    let expected = world
        .wait_queue
        .expect_take_recorded()
        .withf(move |known, _, record, _| *known == next && *record == audit_entry(1));
    expected.times(1).return_once(|_, _, _, _| Ok(taken));
}

/// Returns an audit record and expects that its intent is stored this number of times.
fn early(begun: usize) -> PreparedRecord {
    let mut trail = MockAuditTrail::new();
    trail.expect_stamp().returning(RecordTimestamp::free);
    trail.expect_begin().withf(|entry| *entry == audit_entry(1)).times(begun).returning(|_| Ok(()));
    PreparedRecord::new(audit_entry(1), Arc::new(trail))
}

async fn acquire(casement: &UseCases, record: Option<&PreparedRecord>) -> Session {
    match casement.leases.acquire_recorded(&scope(), "warm", AcquireRequest::default(), record).await.expect("leased") {
        Acquired::Leased(session) => *session,
        _ => panic!("a browser was idle"),
    }
}

#[tokio::test]
async fn a_cached_browser_serves_one_caller() {
    let mut world = read(1);
    leases_recorded(&mut world, leased());
    leases(&mut world, leased());
    world.engine.expect_hand_out().times(2).returning(|_, _| Ok(()));
    let casement = world.build();
    assert!(!casement.leases.has_cached_candidate(&scope(), "warm"));
    casement.leases.look_ahead(&scope(), "warm").await;
    assert!(casement.leases.has_cached_candidate(&scope(), "warm"));
    for (begun, outcome) in [(0, PreparedRecordOutcome::Stored), (1, PreparedRecordOutcome::Declined)] {
        let record = early(begun);
        acquire(&casement, Some(&record)).await;
        assert_eq!(record.outcome(), outcome);
        assert!(!casement.leases.has_cached_candidate(&scope(), "warm"));
    }
}

#[tokio::test]
async fn a_caller_without_an_audit_record_reads_the_pool() {
    let mut world = read(1);
    leases(&mut world, leased());
    world.engine.expect_hand_out().times(1).returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    assert_eq!(acquire(&casement, None).await, leased_session(1));
}

#[tokio::test]
async fn a_cached_lease_is_stored_with_its_audit_record_before_the_probe() {
    let mut world = read(1);
    let mut order = Sequence::new();
    let expected = world.wait_queue.expect_take_recorded().times(1).in_sequence(&mut order);
    expected.return_once(|_, _, _, _| Ok(leased()));
    let probe = world.engine.expect_hand_out().withf(|id, _| *id == browser_id(1));
    probe.times(1).in_sequence(&mut order).returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    let record = early(0);
    assert_eq!(record.outcome(), PreparedRecordOutcome::Open);
    assert_eq!(acquire(&casement, Some(&record)).await, leased_session(1));
    assert_eq!(record.outcome(), PreparedRecordOutcome::Stored);
}

/// An owner who has just allowed a host must not be refused it.
#[tokio::test]
async fn an_outdated_cached_pool_refuses_nothing() {
    let mut world = World::default();
    let mut outdated = warm_pool();
    let allowlist = Some(Allowlist::new(vec![Destination::parse_allowed("a.test").expect("a host")]));
    outdated.config.shape.network = Some(Network { allowlist, ..Network::default() });
    world
        .pools
        .expect_find_with_next()
        .times(1)
        .returning(move |_, _, _| Ok(Some((outdated.clone(), Some(browser_id(1))))));
    world.pools.expect_find().times(1).returning(|_, _| Ok(Some(warm_pool())));
    leases(&mut world, leased());
    world.engine.expect_hand_out().times(1).returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    let elsewhere = AcquireRequest { start_url: Some("https://b.test/".to_owned()), ..AcquireRequest::default() };
    let record = early(1);
    let acquired = casement.leases.acquire_recorded(&scope(), "warm", elsewhere, Some(&record)).await;
    assert!(matches!(acquired, Ok(Acquired::Leased(_))));
    assert_eq!(record.outcome(), PreparedRecordOutcome::Declined);
}

#[tokio::test]
async fn an_uncached_lease_is_stored_without_its_audit_record() {
    let mut world = read(1);
    leases_recorded(&mut world, ImmediateLease::Busy);
    leases(&mut world, leased());
    world.engine.expect_hand_out().returning(|_, _| Ok(()));
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    let record = early(1);
    acquire(&casement, Some(&record)).await;
    assert_eq!(record.outcome(), PreparedRecordOutcome::Declined);
}

#[tokio::test]
async fn a_recorded_lease_of_a_dead_browser_is_replaced_and_recorded_again() {
    let mut world = read(1);
    let rows = world.keep_sessions([]);
    let stored = rows.clone();
    world.wait_queue.expect_take_recorded().times(1).returning(move |_, lease, _, _| {
        let session = Session { id: lease.session, ..leased_session(1) };
        stored.put(session.clone());
        Ok(ImmediateLease::Leased(Box::new(session)))
    });
    let next = Session { browser: Some(browser_id(2)), ..leased_session(2) };
    leases(&mut world, ImmediateLease::Leased(Box::new(next.clone())));
    world.engine.expect_hand_out().times(2).returning(|id, _| if id == browser_id(1) { Err(hung()) } else { Ok(()) });
    world.expect_cleanup(browser_id(1));
    world.connections.expect_close().times(1).return_const(());
    world.expect_wakes(1);
    let casement = world.build();
    casement.leases.look_ahead(&scope(), "warm").await;
    let record = early(0);
    assert_eq!(acquire(&casement, Some(&record)).await, next);
    assert_eq!(record.outcome(), PreparedRecordOutcome::Superseded);
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
}

#[tokio::test]
async fn nothing_is_leased_for_a_call_that_cannot_be_stored_as_begun() {
    let world = read(0);
    let mut trail = MockAuditTrail::new();
    trail.expect_stamp().returning(RecordTimestamp::free);
    trail.expect_begin().times(1).returning(|_| Err(StoreError::unavailable("audit.begin", "away")));
    let record = PreparedRecord::new(audit_entry(1), Arc::new(trail));
    let casement = world.build();
    let refused = casement.leases.acquire_recorded(&scope(), "warm", AcquireRequest::default(), Some(&record)).await;
    assert!(matches!(refused.err(), Some(UseCaseError::Store(StoreError::Unavailable { maybe_done: false, .. }))));
}
