//! An acquire request whose audit record is stored with its lease has exactly that record, for every result.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use casement_domain::{
    ProfileId, StoreError,
    audit::AuditEntry,
    browser::EngineError,
    pool::{ImmediateLease, Pool},
    profile::LoadedProfile,
    session::{EndReason, Session, SessionState},
    store_error::Replaced,
    testing::{browser_id, leased_session, pool},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use ulid::Ulid;

use super::{
    acquire::{PATH, acquire, until},
    support::{Ports, TestApi, Trail},
};

fn warm() -> Pool {
    let mut pool = pool(4).build();
    pool.config.timeout_seconds = leased_session(1).timeout_seconds;
    pool
}

/// The records that were stored with leases.
type StoredBatch = Arc<Mutex<Vec<AuditEntry>>>;

/// Starts a server with a pool whose next browser is cached, because a caller just leased one. During the lease of the
/// next caller, `happens` is called. That lease returns `session`, whose browser responds if `answers` is true.
async fn with_next_browser_cached(
    mut ports: Ports,
    happens: impl Fn() + Send + Sync + 'static,
    session: Session,
    answers: bool,
) -> (TestApi, StoredBatch) {
    let (stored, seen) = (StoredBatch::default(), Arc::new(AtomicBool::new(false)));
    ports.pools.expect_find().returning(|_, _| Ok(Some(warm())));
    let looked = Arc::clone(&seen);
    ports.pools.expect_find_with_next().returning(move |_, _, _| {
        looked.store(true, Ordering::SeqCst);
        Ok(Some((warm(), Some(browser_id(1)))))
    });
    ports.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Leased(Box::new(leased_session(1)))));
    let noted = Arc::clone(&stored);
    ports.wait_queue.expect_take_recorded().returning(move |_, _, record, _| {
        noted.lock().push(record.clone());
        happens();
        Ok(ImmediateLease::Leased(Box::new(session.clone())))
    });
    let hand_outs = AtomicUsize::new(0);
    ports.engine.expect_hand_out().returning(move |id, _| match hand_outs.fetch_add(1, Ordering::SeqCst) {
        1 if !answers => Err(EngineError::NotRunning(id)),
        _ => Ok(()),
    });
    let api = TestApi::start(ports);
    assert_eq!(api.post(PATH, json!({})).await.status, 200);
    until("it was looked ahead", || seen.load(Ordering::SeqCst)).await;
    // The server caches the next browser on a separate thread, which cannot be observed.
    tokio::time::sleep(Duration::from_secs(2)).await;
    (api, stored)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_record_is_not_written_again() {
    let trail = Trail::default();
    let (api, stored) = Box::pin(with_next_browser_cached(
        Ports { trail: trail.clone(), ..Ports::default() },
        || {},
        leased_session(1),
        true,
    ))
    .await;
    assert_eq!(api.post(PATH, json!({})).await.status, 200);
    let stored = stored.lock().clone();
    let [record] = &stored[..] else { panic!("one lease: {stored:?}") };
    assert_eq!((record.method.as_str(), record.path.as_str(), record.status), ("POST", PATH, 200));
    assert_eq!(record.route, "/browser_pools/{id_or_name}/acquire");
    assert!(record.api_key.is_some() && record.project.is_some());
    assert_eq!(trail.entries().await.len(), 1, "of the first caller alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_falls_to_the_next_browser_if_one_does_not_respond_and_is_durable() {
    let trail = Trail::default();
    let mut ports = Ports { trail: trail.clone(), ..Ports::default() };
    ports.wake.expect_wake().return_const(());
    ports.sessions.expect_find().returning(|_| Ok(Some(leased_session(1))));
    ports.sessions.expect_end().returning(|_, _| Ok(Replaced::Yes));
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    let (api, stored) = Box::pin(with_next_browser_cached(ports, || {}, leased_session(1), false)).await;
    assert_eq!(api.post(PATH, json!({})).await.status, 200);
    let stored = stored.lock().clone();
    let entries = trail.entries().await;
    let (_, record) = entries.last().unwrap();
    assert_eq!((record.id, record.at, record.status), (stored[0].id, stored[0].at, 200));
    assert_eq!((stored.len(), entries.len()), (1, 2), "one of each caller");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_response_corrects_its_prepared_record() {
    let trail = Trail::default();
    let mut ports = Ports { trail: trail.clone(), ..Ports::default() };
    let away = || StoreError::unavailable("profiles.of_ids", "away");
    ports.profiles.expect_of_ids().returning(move |_| Err(away()));
    ports.wake.expect_wake().return_const(());
    ports.sessions.expect_find().returning(|_| Ok(Some(leased_session(1))));
    ports.sessions.expect_end().returning(|_, _| Ok(Replaced::Yes));
    let mut session = leased_session(1);
    session.shape.profile =
        Some(LoadedProfile { id: ProfileId::from_ulid(Ulid(1)), version: None, save_changes: false });
    let (api, stored) = Box::pin(with_next_browser_cached(ports, || {}, session, true)).await;
    assert_eq!(api.post(PATH, json!({})).await.status, 503);
    let stored = stored.lock().clone();
    let entries = trail.entries().await;
    let (_, corrected) = entries.last().unwrap();
    assert_eq!((corrected.id, corrected.at, corrected.status), (stored[0].id, stored[0].at, 503));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_disconnects_meanwhile_leaves_no_second_record() {
    let (trail, back, reached) = (Trail::default(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut ports = Ports { trail: trail.clone(), queue_delay: Duration::from_secs(2), ..Ports::default() };
    ports.wake.expect_wake().return_const(());
    ports.sessions.expect_find().returning(|_| Ok(Some(leased_session(1))));
    let ended = Arc::clone(&back);
    ports.sessions.expect_end().returning(move |_, next| {
        ended.store(next.state == SessionState::Ended(EndReason::Undelivered), Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    let taking = Arc::clone(&reached);
    let happens = move || taking.store(true, Ordering::SeqCst);
    let (api, stored) = Box::pin(with_next_browser_cached(ports, happens, leased_session(1), true)).await;
    let mut stream = api.connect().await;
    stream.write_all(&acquire()).await.unwrap();
    until("taking", || reached.load(Ordering::SeqCst)).await;
    drop(stream);
    until("given back", || back.load(Ordering::SeqCst)).await;
    // The record is completed when the request is dropped; another thread returns the browser.
    let lost = || trail.entries.lock().iter().any(|(_, noted)| noted.status == 499);
    until("its record is finished", lost).await;
    let stored = stored.lock().clone();
    let entries = trail.entries().await;
    let (_, noted) = entries.last().unwrap();
    assert_eq!((noted.id, noted.at, noted.status), (stored[0].id, stored[0].at, 499));
}
