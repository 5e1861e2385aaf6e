//! Exports the audit records of organizations to their destinations continuously, each record once.
//!
//! An object holds the records between two positions of the trail, of which the last is **stored before the object is
//! written**, and as the exported one after it. A server that ends in between writes the same records to the same name
//! again. Only records of complete times are read, so none is stored later before an exported one.

mod object;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use casement_domain::audit::{AuditRecord, AuditRepository, AuditTrail, Position};
use casement_domain::audit_destination::{
    AuditBuckets, AuditDestination, AuditDestinationRepository, AuditExportStatus, AuditExportWaker,
};
use casement_domain::clock::Clock;
use casement_domain::{AuditRecordId, Entropy, NodeId, StoreError};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use metrics::counter;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};
use ulid::Ulid;

use self::object::Object;

/// The time for which other nodes leave a destination to this one. It is extended with each object, and longer than one
/// takes.
const CLAIM: time::Duration = time::Duration::minutes(2);
/// The pause before records are exported that other nodes have not completed.
const OTHER_NODES_INTERVAL: Duration = Duration::from_secs(5);
/// The time by which a pause is extended, because the wall clock decides whether an attempt is due.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(100);
/// How far behind the present the requested end of the trail is, so that the trail does not wait for other nodes.
const AHEAD: time::Duration = time::Duration::HOUR;

/// Writes a record as a line of JSON.
pub type WriteLine = fn(AuditRecord, &mut dyn io::Write) -> io::Result<()>;

/// The dependencies of the export.
#[derive(Clone)]
pub struct AuditExportDeps {
    /// This node.
    pub node: NodeId,
    /// The destinations.
    pub destinations: Arc<dyn AuditDestinationRepository>,
    /// The stored records.
    pub records: Arc<dyn AuditRepository>,
    /// The trail, which knows how far the records are complete.
    pub trail: Arc<dyn AuditTrail>,
    /// The buckets.
    pub buckets: Arc<dyn AuditBuckets>,
    /// The format of lines.
    pub write_line: WriteLine,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of the spread of pauses.
    pub entropy: Arc<dyn Entropy>,
    /// Notified when records are written.
    pub written: Arc<Notify>,
    /// Notified when a caller has changed a destination.
    pub changed: ChangeSignal,
    /// The time for which records collect before they are exported.
    pub interval: Duration,
}

/// Notifies the export of changed destinations.
#[derive(Clone, Debug, Default)]
pub struct ChangeSignal(Arc<Notify>);

impl AuditExportWaker for ChangeSignal {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// Exports to the destinations that no other node exports to.
pub struct AuditExporter {
    deps: AuditExportDeps,
    /// The times of the next runs: of collected records, and of attempts after failures.
    due: BTreeSet<Instant>,
    /// True from the first written record after a run to the next run.
    collecting: bool,
}

/// The result of exporting to one destination.
enum Outcome {
    /// Everything is exported, or the export is not for this node to do any more.
    Done,
    /// The next attempt is due after this pause.
    Failed(Duration),
}

impl AuditExporter {
    /// Creates the export. It does nothing by itself.
    #[must_use]
    pub fn new(deps: AuditExportDeps) -> Self {
        Self { deps, due: BTreeSet::new(), collecting: false }
    }

    /// Returns when the next run is due. May be cancelled at any time.
    pub async fn wait_until_due(&mut self) {
        loop {
            let first = self.due.first().copied();
            let due = async {
                match first {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                () = self.deps.changed.0.notified() => return,
                () = self.deps.written.notified(), if !self.collecting => {
                    self.collecting = true;
                    self.run_within(self.deps.interval);
                }
            }
        }
    }

    fn run_within(&mut self, pause: Duration) {
        self.due.insert(Instant::now() + pause);
    }

    /// Exports what waits. Failures of buckets are stored with their destinations.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn run(&mut self) -> Result<(), StoreError> {
        self.due = self.due.split_off(&Instant::now());
        self.collecting = false;
        let now = self.deps.clock.now();
        let claimed = self.deps.destinations.claim(self.deps.node, now, now + CLAIM).await?;
        if claimed.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = claimed.iter().map(|destination| destination.id).collect();
        let result = self.export_to(claimed, now).await;
        self.deps.destinations.release(self.deps.node, &ids).await?;
        result
    }

    async fn export_to(&mut self, claimed: Vec<AuditDestination>, now: OffsetDateTime) -> Result<(), StoreError> {
        let whole = self.deps.trail.whole_until(now + AHEAD).await?;
        if whole < now {
            // Records of this node wait until the other nodes are complete as well.
            self.run_within(OTHER_NODES_INTERVAL);
        }
        let deps = self.deps.clone();
        let mut exports: FuturesUnordered<_> = claimed.into_iter().map(|one| deps.export(one, whole)).collect();
        let mut result = Ok(());
        while let Some(outcome) = exports.next().await {
            match outcome {
                Ok(Outcome::Done) => {}
                Ok(Outcome::Failed(pause)) => self.run_within(pause + CLOCK_TOLERANCE),
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

impl AuditExportDeps {
    /// Exports all records from before `whole` to one destination, object by object.
    async fn export(&self, mut destination: AuditDestination, whole: OffsetDateTime) -> Result<Outcome, StoreError> {
        loop {
            let Some(after) = destination.exported else { return Ok(Outcome::Done) };
            let is_repeated = destination.planned.is_some();
            let before = destination.planned.map_or(start_of(whole), Position::ahead);
            let object = Object::read(self, &destination, after, before).await?;
            let through = match (destination.planned, &object) {
                (Some(planned), _) => planned,
                (None, Some(object)) => object.last,
                (None, None) => return Ok(Outcome::Done),
            };
            let until = self.clock.now() + CLAIM;
            if !is_repeated && !self.destinations.plan(destination.id, after, through, until).await? {
                return Ok(Outcome::Done);
            }
            // A planned object has no records if they were deleted since, because they were too old.
            if let Some(object) = object {
                let (count, name) = (object.count, destination.object_name(through));
                if let Err(fault) = self.buckets.put(&destination.target, &name, Bytes::from(object.content)).await {
                    return self.fail(destination, fault.to_string()).await;
                }
                counter!("casement_audit_export_records_total").increment(count.into());
            }
            if destination.health.consecutive_failures > 0 {
                info!(destination = %destination.id, "audit records are exported again");
            }
            match self.destinations.advance(destination.id, through, self.clock.now()).await? {
                Some(next) if next.status == AuditExportStatus::Active => destination = next,
                _ => return Ok(Outcome::Done),
            }
        }
    }

    async fn fail(&self, destination: AuditDestination, error: String) -> Result<Outcome, StoreError> {
        counter!("casement_audit_export_failures_total").increment(1);
        let (id, now) = (destination.id, self.clock.now());
        if destination.health.last_error.as_ref() == Some(&error) && destination.health.consecutive_failures > 0 {
            debug!(destination = %id, error, "audit records still cannot be exported");
        } else {
            warn!(destination = %id, error, "cannot export audit records to a bucket");
        }
        let health = destination.health.failed(error, now, self.entropy.secret_bytes()[0]);
        self.destinations.note_failure(id, &health).await?;
        let pause = health.next_attempt_at.map_or(time::Duration::ZERO, |at| at - now);
        Ok(Outcome::Failed(pause.unsigned_abs()))
    }
}

/// Returns the position before all records from `at` on.
fn start_of(at: OffsetDateTime) -> Position {
    Position { at, id: AuditRecordId::from_ulid(Ulid(0)) }
}
