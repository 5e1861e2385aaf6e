//! Tests of the export with a store and a bucket in memory.

use std::collections::BTreeMap;
use std::io::Read as _;

use casement_domain::audit::{AuditEntry, MockAuditRepository, MockAuditTrail};
use casement_domain::audit_destination::{BucketFault, MockAuditBuckets, MockAuditDestinationRepository};
use casement_domain::testing::{CountingIds, FixedClock, NOON, audit_destination, audit_entry, node_id};
use flate2::read::MultiGzDecoder;
use parking_lot::Mutex;

use super::*;

/// The stored destination and records, the bucket, and what fails.
#[derive(Default)]
struct World {
    destination: Mutex<Option<AuditDestination>>,
    records: Mutex<Vec<AuditRecord>>,
    objects: Mutex<BTreeMap<String, Vec<String>>>,
    /// The number of writes, also of the same object.
    writes: Mutex<u32>,
    fault: Mutex<Option<BucketFault>>,
    /// True: the next `advance` fails as if the server had ended before it.
    ends_before_advance: Mutex<bool>,
}

fn record(n: u128, at: OffsetDateTime) -> AuditRecord {
    let entry = AuditEntry { id: AuditRecordId::from_ulid(Ulid(n)), at, ..audit_entry(1) };
    AuditRecord { organization: audit_destination().organization, user: None, email: String::new(), entry }
}

fn minutes(n: i64) -> OffsetDateTime {
    NOON + time::Duration::minutes(n)
}

fn write_id(record: AuditRecord, output: &mut dyn io::Write) -> io::Result<()> {
    writeln!(output, "{}", record.entry.id.ulid().0)
}

fn away() -> StoreError {
    StoreError::unavailable("audit_destination.advance", "away")
}

impl World {
    fn with(records: impl IntoIterator<Item = AuditRecord>) -> Arc<Self> {
        let world = Self { records: Mutex::new(records.into_iter().collect()), ..Self::default() };
        *world.destination.lock() = Some(audit_destination());
        Arc::new(world)
    }

    /// Returns the export at a time until which the records are complete.
    fn exporter(self: &Arc<Self>, whole: OffsetDateTime) -> AuditExporter {
        let mut trail = MockAuditTrail::new();
        trail.expect_whole_until().returning(move |_| Ok(whole));
        let clock = FixedClock::default();
        clock.set(whole);
        AuditExporter::new(AuditExportDeps {
            node: node_id(),
            destinations: Arc::new(self.destinations()),
            records: Arc::new(self.audit()),
            trail: Arc::new(trail),
            buckets: Arc::new(self.buckets()),
            write_line: write_id,
            clock: Arc::new(clock),
            entropy: Arc::new(CountingIds::default()),
            written: Arc::default(),
            changed: ChangeSignal::default(),
            interval: Duration::from_secs(10),
        })
    }

    fn destinations(self: &Arc<Self>) -> MockAuditDestinationRepository {
        let mut rows = MockAuditDestinationRepository::new();
        let world = Arc::clone(self);
        rows.expect_claim().returning(move |_, now, _| {
            let is_due = |one: &AuditDestination| one.health.next_attempt_at.is_none_or(|at| at <= now);
            Ok(world.destination.lock().clone().filter(is_due).into_iter().collect())
        });
        let world = Arc::clone(self);
        rows.expect_plan().returning(move |_, after, through, _| {
            let mut stored = world.destination.lock();
            let Some(one) = stored.as_mut().filter(|one| one.exported == Some(after) && one.planned.is_none()) else {
                return Ok(false);
            };
            one.planned = Some(through);
            Ok(true)
        });
        let world = Arc::clone(self);
        rows.expect_advance().returning(move |_, through, at| {
            if std::mem::take(&mut *world.ends_before_advance.lock()) {
                return Err(away());
            }
            let mut stored = world.destination.lock();
            let Some(one) = stored.as_mut().filter(|one| one.planned == Some(through)) else { return Ok(None) };
            (one.exported, one.planned, one.health.consecutive_failures) = (Some(through), None, 0);
            (one.health.last_success_at, one.health.next_attempt_at) = (Some(at), None);
            Ok(Some(one.clone()))
        });
        let world = Arc::clone(self);
        rows.expect_note_failure().returning(move |_, health| {
            world.destination.lock().as_mut().expect("stored").health = health.clone();
            Ok(())
        });
        rows.expect_release().returning(|_, _| Ok(()));
        rows
    }

    fn audit(self: &Arc<Self>) -> MockAuditRepository {
        let (mut audit, world) = (MockAuditRepository::new(), Arc::clone(self));
        audit.expect_following().returning(move |_, after, before, limit| {
            let place = |position: Position| (position.at, position.id.ulid());
            let mut found = world.records.lock().clone();
            found.retain(|one| place(after) < place(one.position()) && place(one.position()) < place(before));
            found.sort_by_key(|one| place(one.position()));
            found.truncate(limit as usize);
            Ok(found)
        });
        audit
    }

    fn buckets(self: &Arc<Self>) -> MockAuditBuckets {
        let (mut buckets, world) = (MockAuditBuckets::new(), Arc::clone(self));
        buckets.expect_put().returning(move |_, name, content| {
            if let Some(fault) = world.fault.lock().clone() {
                return Err(fault);
            }
            let mut text = String::new();
            MultiGzDecoder::new(&*content).read_to_string(&mut text).expect("gzip");
            *world.writes.lock() += 1;
            world.objects.lock().insert(name.to_owned(), text.lines().map(str::to_owned).collect());
            Ok(())
        });
        buckets
    }

    /// Returns the exported numbers, object by object.
    fn exported(&self) -> Vec<Vec<String>> {
        self.objects.lock().values().cloned().collect()
    }
}

#[tokio::test]
async fn records_are_exported_once_in_objects_of_one_hour() {
    let times = [(1, 1), (2, 59), (3, 60), (4, 61), (5, 200)];
    let world = World::with(times.map(|(n, minute)| record(n, minutes(minute))));
    world.exporter(minutes(100)).run().await.expect("exported");
    assert_eq!(world.exported(), [vec!["1", "2"], vec!["3", "4"]]);
    let names: Vec<String> = world.objects.lock().keys().cloned().collect();
    assert!(names[0].contains("/hour=12/") && names[1].contains("/hour=13/"), "{names:?}");
    world.exporter(minutes(100)).run().await.expect("nothing to export");
    assert_eq!(*world.writes.lock(), 2);
    // What was stored later is exported later.
    world.records.lock().push(record(6, minutes(150)));
    world.exporter(minutes(300)).run().await.expect("exported");
    assert_eq!(world.exported(), [vec!["1", "2"], vec!["3", "4"], vec!["6"], vec!["5"]]);
}

#[tokio::test]
async fn an_export_that_ended_before_its_mark_writes_the_same_object_again() {
    let world = World::with([record(1, minutes(1)), record(2, minutes(2))]);
    *world.ends_before_advance.lock() = true;
    world.exporter(minutes(10)).run().await.expect_err("the store is away");
    // More records were stored before the next run; they do not belong to the planned object.
    world.records.lock().push(record(3, minutes(11)));
    world.exporter(minutes(20)).run().await.expect("exported");
    assert_eq!(
        (world.exported(), *world.writes.lock()),
        (vec![vec!["1".to_owned(), "2".to_owned()], vec!["3".to_owned()]], 3)
    );
}

#[tokio::test]
async fn a_bucket_that_fails_delays_its_records_and_loses_none() {
    let world = World::with([record(1, minutes(1))]);
    let denied = BucketFault::Refused { status: 403, code: Some("AccessDenied".to_owned()) };
    *world.fault.lock() = Some(denied);
    let mut exporter = world.exporter(minutes(10));
    exporter.run().await.expect("a failure of a bucket is no error");
    assert!(!exporter.due.is_empty());
    let failed = world.destination.lock().clone().expect("stored").health;
    assert_eq!(failed.last_error.as_deref(), Some("the store answers 403 AccessDenied"));
    assert_eq!((failed.consecutive_failures, failed.last_success_at), (1, None));
    *world.fault.lock() = None;
    exporter.run().await.expect("not due yet");
    assert!(world.exported().is_empty());
    world.exporter(minutes(11)).run().await.expect("exported");
    assert_eq!(world.exported(), [vec!["1"]]);
    assert_eq!(world.destination.lock().clone().expect("stored").health.consecutive_failures, 0);
}

#[tokio::test]
async fn a_planned_object_whose_records_were_deleted_is_skipped() {
    let world = World::with([]);
    let planned = Position { at: minutes(1), id: AuditRecordId::from_ulid(Ulid(1)) };
    world.destination.lock().as_mut().expect("stored").planned = Some(planned);
    world.exporter(minutes(10)).run().await.expect("skipped");
    assert_eq!(
        (world.exported().len(), world.destination.lock().clone().expect("stored").exported),
        (0, Some(planned))
    );
}

#[tokio::test]
async fn nothing_is_exported_after_a_pause_or_a_deletion() {
    let world = World::with([record(1, minutes(1))]);
    let mut exporter = world.exporter(minutes(10));
    let claimed = world.destination.lock().clone().expect("stored");
    *world.destination.lock() = None;
    let outcome = exporter.export_to(vec![claimed], minutes(10)).await;
    assert!(outcome.is_ok() && world.exported().is_empty());
}

#[tokio::test(start_paused = true)]
async fn written_records_collect_and_a_changed_destination_is_exported_at_once() {
    let world = World::with([]);
    let mut exporter = world.exporter(minutes(10));
    let (written, changed) = (Arc::clone(&exporter.deps.written), exporter.deps.changed.clone());
    let began = Instant::now();
    written.notify_one();
    exporter.wait_until_due().await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    exporter.run().await.expect("nothing");
    changed.wake();
    exporter.wait_until_due().await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}
