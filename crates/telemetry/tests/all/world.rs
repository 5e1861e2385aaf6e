//! Nodes over one database and one bucket.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::api_key::{ApiKey, SecretHash};
use casement_domain::audit::{AuditEntry, AuditRecord, AuditTrail as _, NodeRun, RecordTimestamp};
use casement_domain::audit_destination::{AuditBuckets, AuditDestinationRepository as _, BucketFault, BucketTarget};
use casement_domain::clock::Clock as _;
use casement_domain::name::LabelName;
use casement_domain::node::{Node, NodeRepository as _};
use casement_domain::organization::{FirstStart, OrganizationRepository as _, User};
use casement_domain::testing::{self, CountingIds, FixedClock, NOON, audit_destination, audit_entry, organization_id};
use casement_domain::{ApiKeyId, AuditRecordId, NodeId, NodeRunId, StoreError, UserId};
use casement_postgres::testing::TestDatabase;
use casement_postgres::{PgAudit, PgAuditDestinations, PgNodes, PgOrganizations};
use casement_telemetry::audit::{AuditWriter, BatchedAuditTrail};
use casement_telemetry::audit_export::{AuditExportDeps, AuditExporter, ChangeSignal};
use flate2::read::MultiGzDecoder;
use parking_lot::Mutex;
use tokio::sync::Notify;
use ulid::Ulid;

pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type TestResult = Result<(), Fault>;

/// A database with an organization and an active destination, and its bucket.
pub(crate) struct World {
    db: TestDatabase,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) clock: Arc<FixedClock>,
}

impl World {
    pub(crate) async fn new() -> Result<Self, Fault> {
        let db = TestDatabase::fresh().await?;
        PgOrganizations::new(db.database().clone()).begin(&first_start()?).await?;
        let destinations = PgAuditDestinations::new(db.database().clone());
        let _stored = destinations.create(&audit_destination(), 1).await?;
        Ok(Self { db, bucket: Arc::default(), clock: Arc::default() })
    }

    /// Starts the n-th node.
    pub(crate) async fn node(&self, n: u128) -> Result<TestNode, Fault> {
        let id = NodeId::from_ulid(Ulid::from_parts(3, n));
        let node = Node { id, cluster: None, ..testing::node_status().stored.node };
        PgNodes::new(self.db.database().clone()).announce(&node).await?;
        let audit = Arc::new(PgAudit::new(self.db.database().clone()).on_node(id));
        let run = NodeRun { node: id, run: NodeRunId::from_ulid(Ulid(n)) };
        let (trail, writer) = BatchedAuditTrail::start(audit.clone(), self.clock.clone(), run, None);
        let trail = Arc::new(trail);
        let exporter = AuditExporter::new(AuditExportDeps {
            node: id,
            destinations: Arc::new(PgAuditDestinations::new(self.db.database().clone())),
            records: audit,
            trail: trail.clone(),
            buckets: self.bucket.clone(),
            write_line,
            clock: self.clock.clone(),
            entropy: Arc::new(CountingIds::default()),
            written: trail.written(),
            changed: ChangeSignal::default(),
            interval: Duration::from_secs(1),
        });
        trail.reconcile().await?;
        let calls = Calls { clock: self.clock.clone(), trail };
        Ok(TestNode { id, calls, exporter, _writer: writer })
    }

    /// Makes a node silent for a minute: its heartbeat and its mark.
    pub(crate) async fn silence(&self, node: NodeId) -> TestResult {
        let id = uuid(node);
        let ago = "now() - interval '1 minute'";
        let heartbeat = format!("UPDATE nodes SET heartbeat_at = {ago} WHERE id = '{id}'");
        let mark = format!("UPDATE audit_records_marks SET marked_at = {ago} WHERE node_id = '{id}'");
        Ok(self.db.execute(&format!("{heartbeat}; {mark}")).await?)
    }

    /// Lets the time pass that separates what is complete from what is not.
    pub(crate) fn second(&self) {
        self.clock.advance(time::Duration::SECOND);
    }
}

/// Returns an identifier in the form of the database.
fn uuid(node: NodeId) -> String {
    let digits = format!("{:032x}", node.ulid().0);
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

fn first_start() -> Result<FirstStart, Fault> {
    let user = UserId::from_ulid(Ulid::from_parts(9, 1));
    let key = ApiKey {
        id: ApiKeyId::from_ulid(Ulid::from_parts(8, 1)),
        organization: organization_id(),
        project: None,
        name: LabelName::parse("first").map_err(|bad| format!("{bad:?}"))?,
        hash: SecretHash([7; 32]),
        last4: "abcd".to_owned(),
        created_by: user,
        created_at: NOON,
        expires_at: None,
        deleted_at: None,
        for_deployment: false,
        policy: None,
    };
    let owner = User { id: user, organization: organization_id(), email: String::new(), name: None };
    Ok(FirstStart { organization: testing::organization(), owner, project: testing::project(), key })
}

fn write_line(record: AuditRecord, output: &mut dyn io::Write) -> io::Result<()> {
    writeln!(output, "{}", number_of(record.entry.id))
}

fn number_of(id: AuditRecordId) -> u128 {
    id.ulid().0 & u128::from(u64::MAX)
}

/// A node that records calls and exports records.
pub(crate) struct TestNode {
    pub(crate) id: NodeId,
    pub(crate) calls: Calls,
    pub(crate) exporter: AuditExporter,
    _writer: AuditWriter,
}

/// The calls of a node, whose records it stores.
pub(crate) struct Calls {
    clock: Arc<FixedClock>,
    trail: Arc<BatchedAuditTrail>,
}

/// A call whose record is not stored yet.
pub(crate) struct Call {
    entry: AuditEntry,
    _stamp: RecordTimestamp,
}

impl Calls {
    /// Begins the n-th call, which has its time from now on.
    pub(crate) fn begin(&self, n: u32) -> Call {
        let stamp = self.trail.stamp(self.clock.now());
        Call { entry: AuditEntry { at: stamp.at(), ..audit_entry(n) }, _stamp: stamp }
    }

    /// Stores the record of a call.
    pub(crate) async fn end(&self, call: Call) -> Result<(), StoreError> {
        self.trail.keep(call.entry, None).await
    }

    /// Records these calls.
    pub(crate) async fn record(&self, numbers: std::ops::Range<u32>) -> Result<(), StoreError> {
        for n in numbers {
            self.end(self.begin(n)).await?;
        }
        Ok(())
    }

    /// Reports to the other nodes that the records of this one are complete.
    pub(crate) async fn report(&self) -> Result<(), StoreError> {
        self.trail.reconcile().await
    }
}

/// A bucket in memory.
#[derive(Default)]
pub(crate) struct Bucket {
    objects: Mutex<BTreeMap<String, Vec<u32>>>,
    /// Whether the response of the next write never comes.
    pub(crate) is_silent: AtomicBool,
    pub(crate) written: Notify,
}

impl Bucket {
    /// Returns how often each record is in the bucket.
    pub(crate) fn counts(&self) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for n in self.objects.lock().values().flatten() {
            *counts.entry(*n).or_default() += 1;
        }
        counts
    }

    pub(crate) fn has(&self, n: u32) -> bool {
        self.counts().contains_key(&n)
    }
}

#[async_trait]
impl AuditBuckets for Bucket {
    async fn put(&self, _target: &BucketTarget, name: &str, content: Bytes) -> Result<(), BucketFault> {
        let mut text = String::new();
        MultiGzDecoder::new(&*content).read_to_string(&mut text).map_err(|_| BucketFault::Other)?;
        let numbers: Result<Vec<u32>, _> = text.lines().map(str::parse).collect();
        let numbers = numbers.map_err(|_| BucketFault::Other)?;
        let before = self.objects.lock().insert(name.to_owned(), numbers.clone());
        assert!(before.is_none_or(|before| before == numbers), "{name} is written again with other records");
        self.written.notify_one();
        if self.is_silent.swap(false, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn remove(&self, _target: &BucketTarget, name: &str) -> Result<(), BucketFault> {
        self.objects.lock().remove(name);
        Ok(())
    }
}
