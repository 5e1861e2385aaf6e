//! Tests of the audit trail, with a mock store.

use casement_domain::audit::{AuditService, AuthStrategy, MockAuditRepository};
use casement_domain::testing::{FixedClock, NOON};
use casement_domain::{AuditRecordId, NodeId, NodeRunId};
use parking_lot::Mutex;
use ulid::Ulid;

use super::writer::RETRY_BACKOFF;
use super::*;

fn entry(n: u128) -> AuditEntry {
    AuditEntry {
        id: AuditRecordId::from_ulid(Ulid(n)),
        at: NOON,
        auth_strategy: AuthStrategy::ApiKey,
        service: AuditService::Api,
        api_key: None,
        project: None,
        client_ip: String::new(),
        domain: String::new(),
        method: "POST".to_owned(),
        path: "/".to_owned(),
        route: "/".to_owned(),
        status: 200,
        duration_ms: 0,
        user_agent: String::new(),
        request_id: String::new(),
        count: 1,
    }
}

fn run() -> NodeRun {
    NodeRun { node: NodeId::from_ulid(Ulid(1)), run: NodeRunId::from_ulid(Ulid(2)) }
}

const NOW: OffsetDateTime = NOON.saturating_add(time::Duration::HOUR);

fn clock() -> Arc<FixedClock> {
    let clock = FixedClock::default();
    clock.set(NOW);
    Arc::new(clock)
}

fn started(repository: MockAuditRepository) -> (BatchedAuditTrail, AuditWriter) {
    BatchedAuditTrail::start(Arc::new(repository), clock(), run(), None)
}

fn away() -> StoreError {
    StoreError::unavailable("audit.append", "away")
}

#[tokio::test]
async fn concurrent_calls_share_a_commit_and_wait_for_it() {
    let groups = Arc::new(Mutex::new(Vec::new()));
    let mut repository = MockAuditRepository::new();
    let seen = Arc::clone(&groups);
    repository.expect_append().returning(move |entries| {
        seen.lock().push(entries.len());
        Ok(())
    });
    let (trail, writer) = started(repository);
    let answers = futures_util::future::join_all((0..100).map(|n| trail.keep(entry(n), None))).await;
    assert!(answers.iter().all(Result::is_ok));
    drop(trail);
    writer.finish(Duration::from_secs(5)).await;
    let groups = groups.lock();
    assert_eq!(groups.iter().sum::<usize>(), 100);
    assert!(groups.len() < 10, "{groups:?}");
}

#[tokio::test]
async fn records_without_a_waiting_call_are_collected() {
    let groups = Arc::new(Mutex::new(Vec::new()));
    let repository = || {
        let (mut repository, seen) = (MockAuditRepository::new(), Arc::clone(&groups));
        repository.expect_append().returning(move |entries| {
            seen.lock().push(entries.len());
            Ok(())
        });
        Arc::new(repository)
    };
    let (trail, writer) =
        BatchedAuditTrail::start_collecting(repository(), clock(), run(), None, Duration::from_secs(3600));
    for n in 0..5 {
        trail.note(entry(n), None);
        tokio::task::yield_now().await;
    }
    assert!(groups.lock().is_empty());
    trail.keep(entry(5), None).await.expect("it is written");
    assert_eq!(*groups.lock(), [6]);
    trail.note(entry(6), None);
    tokio::task::yield_now().await;
    writer.finish(Duration::from_secs(60)).await;
    assert_eq!(*groups.lock(), [6, 1]);

    let (trail, _writer) = BatchedAuditTrail::start(repository(), clock(), run(), None);
    trail.note(entry(7), None);
    let written = async {
        while groups.lock().len() < 3 {
            tokio::time::sleep(COLLECT_INTERVAL).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("written after the interval");
}

#[tokio::test(start_paused = true)]
async fn calls_fail_at_once_while_the_database_is_away() {
    let mut repository = MockAuditRepository::new();
    repository.expect_append().returning(|_| Err(away()));
    let (trail, _writer) = started(repository);
    let began = tokio::time::Instant::now();
    for n in 0..20 {
        assert!(matches!(trail.keep(entry(n), None).await, Err(StoreError::Unavailable { .. })));
    }
    assert!(began.elapsed() < RETRY_BACKOFF, "{:?}", began.elapsed());
}

#[tokio::test]
async fn finish_retries_until_the_database_is_back() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let mut repository = MockAuditRepository::new();
    let (seen, mut tries) = (Arc::clone(&written), 0);
    repository.expect_append().returning(move |entries| {
        tries += 1;
        if tries < 4 {
            return Err(away());
        }
        seen.lock().extend(entries.iter().map(|entry| entry.id));
        Ok(())
    });
    let (trail, writer) = started(repository);
    trail.keep(entry(1), None).await.expect_err("the database is away");
    drop(trail);
    writer.finish(Duration::from_secs(60)).await;
    assert_eq!(*written.lock(), [entry(1).id]);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_record_does_not_block_others() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let mut repository = MockAuditRepository::new();
    let seen = Arc::clone(&written);
    repository.expect_append().returning(move |entries| {
        if entries.iter().any(|one| one.id == entry(2).id) {
            return Err(StoreError::Broken { operation: "audit.append", source: "never".into() });
        }
        seen.lock().extend(entries.iter().map(|entry| entry.id));
        Ok(())
    });
    let (trail, writer) = started(repository);
    let _ = futures_util::future::join_all((1..=3).map(|n| trail.keep(entry(n), None))).await;
    trail.keep(entry(4), None).await.expect("it goes on");
    for n in 5..=9 {
        trail.note(entry(n), None);
    }
    // `trail` still exists, so that the queue is not closed by its drop.
    let began = tokio::time::Instant::now();
    writer.finish(Duration::from_secs(60)).await;
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(matches!(trail.keep(entry(10), None).await, Err(StoreError::Unavailable { .. })));
    assert_eq!(*written.lock(), [1, 3, 4, 5, 6, 7, 8, 9].map(|n| entry(n).id));
}

#[tokio::test]
async fn a_flush_ends_when_the_earlier_records_are_written() {
    let is_away = Arc::new(Mutex::new(true));
    let mut repository = MockAuditRepository::new();
    let now = Arc::clone(&is_away);
    repository.expect_append().returning(move |_| if *now.lock() { Err(away()) } else { Ok(()) });
    let (mut trail, _writer) = started(repository);
    trail.flush_timeout = Duration::from_millis(50);
    let behind = NOON + time::Duration::SECOND;
    trail.written_until(NOON).await.expect("there is nothing yet");
    assert!(trail.keep(entry(1), None).await.is_err());
    trail.written_until(NOON).await.expect("the end is exclusive");
    assert!(matches!(trail.written_until(behind).await, Err(StoreError::Unavailable { .. })));
    *is_away.lock() = false;
    trail.flush_timeout = Duration::from_secs(60);
    trail.written_until(behind).await.expect("it is written now");
}

#[tokio::test]
async fn a_failed_write_is_reported_at_once_and_retried() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let mut repository = MockAuditRepository::new();
    repository.expect_append().times(1).returning(|_| Err(away()));
    let seen = Arc::clone(&written);
    repository.expect_append().returning(move |entries| {
        seen.lock().extend(entries.iter().map(|entry| entry.id));
        Ok(())
    });
    let (trail, writer) = started(repository);
    assert!(matches!(trail.keep(entry(1), None).await, Err(StoreError::Unavailable { .. })));
    trail.keep(entry(2), None).await.expect("the database is back");
    drop(trail);
    writer.finish(Duration::from_secs(60)).await;
    assert_eq!(*written.lock(), [entry(1).id, entry(2).id]);
}

#[tokio::test]
async fn an_export_contains_all_records_before_its_end() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let mut repository = MockAuditRepository::new();
    let seen = Arc::clone(&written);
    repository.expect_append().returning(move |entries| {
        seen.lock().extend(entries.iter().map(|entry| (entry.id, entry.at)));
        Ok(())
    });
    repository.expect_complete().returning(|_, own| Ok(own));
    let (trail, _writer) = started(repository);
    trail.note(entry(1), None);
    let until = trail.whole_until(NOW + time::Duration::HOUR).await.expect("whole");
    assert_eq!(until, NOW);
    assert_eq!(*written.lock(), [(entry(1).id, NOON)]);
    // A record with an earlier time arrives late, because its thread was delayed.
    trail.keep(entry(2), None).await.expect("written");
    assert_eq!(written.lock()[1], (entry(2).id, until));
    assert!(trail.stamp(NOON).at() >= until);
}

#[tokio::test]
async fn an_export_waits_for_prepared_records() {
    let mut repository = MockAuditRepository::new();
    repository.expect_complete().returning(|_, own| Ok(own));
    let (mut trail, _writer) = started(repository);
    trail.flush_timeout = Duration::from_millis(50);
    let stamp = trail.stamp(NOON);
    assert_eq!(trail.whole_until(NOON).await.expect("the end is exclusive"), NOON);
    let behind = NOON + time::Duration::MICROSECOND;
    assert!(matches!(trail.whole_until(behind).await, Err(StoreError::Unavailable { .. })));
    trail.flush_timeout = Duration::from_secs(60);
    drop(stamp);
    assert_eq!(trail.whole_until(behind).await.expect("nothing is held"), behind);
}

#[tokio::test]
async fn a_range_ends_where_the_records_of_all_nodes_are_complete() {
    let progress = Arc::new(Mutex::new(NOON));
    let mut repository = MockAuditRepository::new();
    let reported = Arc::clone(&progress);
    repository.expect_complete().returning(move |_, own| Ok(own.min(*reported.lock())));
    let (trail, _writer) = started(repository);
    // A range that ends in the future is truncated; a past one is waited for.
    assert_eq!(trail.whole_until(NOW + time::Duration::HOUR).await.expect("whole"), NOON);
    let past = NOON + time::Duration::SECOND;
    let (whole, ()) = tokio::join!(trail.whole_until(past), async {
        tokio::time::sleep(OTHER_NODES_POLL_INTERVAL).await;
        *progress.lock() = past;
    });
    assert_eq!(whole.expect("whole"), past);
}

#[tokio::test]
async fn records_that_exports_have_passed_while_the_node_was_silent_get_a_later_time() {
    let passed = NOW + time::Duration::MINUTE;
    let written = Arc::new(Mutex::new(Vec::new()));
    let mut repository = MockAuditRepository::new();
    let seen = Arc::clone(&written);
    repository.expect_append().returning(move |entries| {
        if entries.iter().any(|entry| entry.at < passed) {
            return Err(away());
        }
        seen.lock().extend(entries.iter().map(|entry| (entry.id, entry.at)));
        Ok(())
    });
    repository.expect_fence().times(1).returning(move |_| Ok(Some(passed)));
    repository.expect_mark().withf(move |_, until| *until == passed).times(1).returning(|_, _| Ok(true));
    repository.expect_recover().returning(|_, _| Ok(0));
    let (trail, writer) = started(repository);
    trail.keep(entry(1), None).await.expect_err("exports have passed it");
    trail.reconcile().await.expect("reported");
    trail.note(entry(2), None);
    writer.finish(Duration::from_secs(60)).await;
    assert_eq!(*written.lock(), [(entry(1).id, passed), (entry(2).id, passed)]);
}

#[tokio::test]
async fn repeated_refusals_are_aggregated_and_written_at_the_end() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let mut repository = MockAuditRepository::new();
    let seen = Arc::clone(&written);
    repository.expect_append().returning(move |entries| {
        seen.lock().extend(entries.iter().map(|entry| (entry.id, entry.count)));
        Ok(())
    });
    let (trail, writer) = started(repository);
    for n in 0..1000 {
        trail.refused(AuditEntry { at: NOW, ..entry(n) });
    }
    writer.finish(Duration::from_secs(60)).await;
    assert_eq!(*written.lock(), [(entry(0).id, 1), (entry(999).id, 999)]);
}

#[tokio::test]
async fn concurrent_intents_share_a_commit_and_cancelled_ones_are_withdrawn() {
    let (groups, withdrawn) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let mut repository = MockAuditRepository::new();
    let (seen, gone) = (Arc::clone(&groups), Arc::clone(&withdrawn));
    repository.expect_begin().returning(move |of, entries| {
        assert_eq!(of, run());
        seen.lock().push(entries.len());
        Ok(())
    });
    repository.expect_withdraw().returning(move |calls| {
        gone.lock().extend_from_slice(calls);
        Ok(())
    });
    let (trail, _writer) = started(repository);
    let mut hung_up = Box::pin(trail.begin(entry(1000)));
    assert!(futures_util::poll!(&mut hung_up).is_pending());
    drop(hung_up);
    let begun = futures_util::future::join_all((0..100).map(|n| trail.begin(entry(n)))).await;
    assert!(begun.iter().all(Result::is_ok));
    assert!(groups.lock().len() < 10);
    let forgotten = async {
        while withdrawn.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), forgotten).await.expect("it is withdrawn");
    assert_eq!(*withdrawn.lock(), [entry(1000).id]);
}

#[tokio::test]
async fn a_call_without_a_stored_intent_fails() {
    let mut repository = MockAuditRepository::new();
    repository.expect_begin().returning(|_, _| Err(away().with_maybe_done(true)));
    let (trail, _writer) = started(repository);
    let refused = trail.begin(entry(1)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { maybe_done: false, .. })));
}

fn of_token(n: u128) -> AuditEntry {
    AuditEntry { auth_strategy: AuthStrategy::SessionToken, ..entry(n) }
}

#[tokio::test]
async fn calls_with_a_token_go_on_without_the_store_and_others_do_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("intents");
    let is_away = Arc::new(Mutex::new(true));
    let mut repository = MockAuditRepository::new();
    repository.expect_begin().returning(|_, _| Err(away()));
    let state = Arc::clone(&is_away);
    repository.expect_append().returning(move |_| if *state.lock() { Err(away()) } else { Ok(()) });
    let spool = IntentSpool::open(path.clone(), run()).expect("a file");
    let (trail, writer) = BatchedAuditTrail::start(Arc::new(repository), clock(), run(), Some(spool));

    trail.begin(of_token(1)).await.expect("its session is here");
    trail.begin(entry(2)).await.expect_err("a key may change anything");

    let stored = std::fs::read_to_string(&path).expect("a file");
    assert_eq!(stored.lines().count(), 1, "{stored}");
    trail.note(AuditEntry { status: 204, ..of_token(1) }, None);
    *is_away.lock() = false;
    writer.finish(Duration::from_secs(60)).await;
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "", "the call is recorded");
}

#[tokio::test]
async fn what_a_killed_process_left_on_disk_is_recorded_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("intents");
    let former = NodeRun { run: NodeRunId::from_ulid(Ulid(9)), ..run() };
    let killed = IntentSpool::open(path.clone(), former).expect("a file");
    killed.append(&[of_token(1), of_token(2)]).expect("room");
    drop(killed);
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| {
            use std::io::Write as _;
            file.write_all(b"\xff\n{\"run\":\"half a li")
        })
        .expect("a file");

    let begun = Arc::new(Mutex::new(Vec::new()));
    let mut repository = MockAuditRepository::new();
    repository.expect_fence().returning(|_| Ok(None));
    repository.expect_mark().returning(|_, _| Ok(true));
    repository.expect_recover().returning(|_, _| Ok(1));
    repository
        .expect_recorded()
        .withf(|calls, since| calls == [entry(1).id, entry(2).id] && *since == NOON)
        .times(1)
        .returning(|_, _| Ok(vec![entry(1).id]));
    let seen = Arc::clone(&begun);
    repository.expect_begin().returning(move |of, entries| {
        seen.lock().push((of, entries.to_vec()));
        Ok(())
    });
    let spool = IntentSpool::open(path.clone(), run()).expect("a file");
    let (trail, _writer) = BatchedAuditTrail::start(Arc::new(repository), clock(), run(), Some(spool));
    trail.reconcile().await.expect("the store answers");
    trail.reconcile().await.expect("the store answers");

    let expected = AuditEntry { status: AuditEntry::UNKNOWN, ..of_token(2) };
    assert_eq!(*begun.lock(), [(former, vec![expected])]);
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "");
}

#[test]
fn intents_behind_a_line_that_is_not_whole_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("intents");
    std::fs::write(&path, "{\"run\":\"half a li").expect("a file");
    let former = NodeRun { run: NodeRunId::from_ulid(Ulid(9)), ..run() };
    IntentSpool::open(path.clone(), former).expect("a file").append(&[of_token(1)]).expect("room");
    let left = IntentSpool::open(path, run()).expect("a file").left().expect("read");
    let expected = AuditEntry { status: AuditEntry::UNKNOWN, ..of_token(1) };
    assert_eq!(left.into_iter().collect::<Vec<_>>(), [(former.run, vec![expected])]);
}
