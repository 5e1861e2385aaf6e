//! Writes audit records to the database in groups, so that many calls share one commit.

mod spool;
#[cfg(test)]
mod tests;
mod timestamps;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::StoreError;
use casement_domain::audit::{
    AuditEntry, AuditRepository, AuditTrail, NodeRun, PreparedRecord, RecordTimestamp, RefusedAttempts,
};
use casement_domain::clock::Clock;
use metrics::counter;
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::spool::IntentSpool;
use self::timestamps::Timestamps;
use self::writer::{
    FlushRequest, MAX_GROUP, MAX_QUEUED, Message, QueuedIntent, QueuedRecord, Writer, begin, to_microseconds,
};

/// The time for which records without a waiting call are collected, because a statement and a commit for each would
/// cost more than the calls.
const COLLECT_INTERVAL: Duration = Duration::from_millis(10);
/// The timeout of a flush for records that are not written yet.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for the report that another node writes every `Node::HEARTBEAT`, and the interval of the checks.
const OTHER_NODES_TIMEOUT: Duration = Duration::from_secs(7);
const OTHER_NODES_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The time for which a report is surely recent for the store, which takes 30 s for recent: nothing has passed this node.
const RECENT_REPORT: Duration = Duration::from_secs(20);
/// The maximum number of attempts to report progress while exports of other nodes go on.
const MAX_MARK_ATTEMPTS: u32 = 3;

/// The audit trail of a node, which writes records in groups.
pub struct BatchedAuditTrail {
    sender: mpsc::Sender<Message>,
    intents: mpsc::Sender<QueuedIntent>,
    /// Wakes the writer when a call waits for its record.
    urgent: Arc<Notify>,
    timestamps: Arc<Timestamps>,
    repository: Arc<dyn AuditRepository>,
    clock: Arc<dyn Clock>,
    run: NodeRun,
    flush_timeout: Duration,
    /// Notified when records are written.
    written: Arc<Notify>,
    spool: Option<Arc<IntentSpool>>,
    /// The last report of this run that the store accepted.
    reported_at: Mutex<Option<tokio::time::Instant>>,
}

/// The task that writes records. It ends when everything is written after [`Self::finish`], or after the last
/// [`BatchedAuditTrail`] is dropped.
pub struct AuditWriter {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl BatchedAuditTrail {
    /// Starts to write records to `repository`. With `spool`, calls with a session's token go on while it is unavailable.
    pub fn start(
        repository: Arc<dyn AuditRepository>,
        clock: Arc<dyn Clock>,
        run: NodeRun,
        spool: Option<IntentSpool>,
    ) -> (Self, AuditWriter) {
        Self::start_collecting(repository, clock, run, spool, COLLECT_INTERVAL)
    }

    fn start_collecting(
        repository: Arc<dyn AuditRepository>,
        clock: Arc<dyn Clock>,
        run: NodeRun,
        spool: Option<IntentSpool>,
        collect_interval: Duration,
    ) -> (Self, AuditWriter) {
        let spool = spool.map(Arc::new);
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        let (intents, beginning) = mpsc::channel(MAX_QUEUED);
        let (urgent, stop) = (Arc::<Notify>::default(), CancellationToken::new());
        let written = Arc::<Notify>::default();
        let timestamps = Arc::new(Timestamps::new(Arc::clone(&written)));
        let writer = Writer {
            repository: Arc::clone(&repository),
            timestamps: Arc::clone(&timestamps),
            clock: Arc::clone(&clock),
            refused: RefusedAttempts::default(),
            unwritten: Vec::new(),
            held: Vec::new(),
            flushes: Vec::new(),
            written: Arc::clone(&written),
            spool: spool.clone(),
        };
        let task = tokio::spawn(writer.write(receiver, Arc::clone(&urgent), collect_interval, stop.clone()));
        tokio::spawn(begin(Arc::clone(&repository), run, spool.clone(), beginning));
        let flush_timeout = FLUSH_TIMEOUT;
        let reported_at = Mutex::new(None);
        let trail = Self {
            sender,
            intents,
            urgent,
            timestamps,
            repository,
            clock,
            run,
            flush_timeout,
            written,
            spool,
            reported_at,
        };
        (trail, AuditWriter { task, stop })
    }

    /// Returns what is notified when records of this node may have been written.
    #[must_use]
    pub fn written(&self) -> Arc<Notify> {
        Arc::clone(&self.written)
    }

    /// Waits until all records of this node with timestamps before `end` are written.
    async fn written_until(&self, end: OffsetDateTime) -> Result<(), StoreError> {
        let unavailable = |why: &str| StoreError::unavailable("audit.settle", why);
        let (done, written) = oneshot::channel();
        let flushed = async {
            let stopping = || unavailable("the server is stopping");
            self.sender.send(Message::Flush(FlushRequest { end, done })).await.map_err(|_| stopping())?;
            self.urgent.notify_one();
            written.await.map_err(|_| stopping())?;
            self.timestamps.released(end).await;
            Ok(())
        };
        let flushed = tokio::time::timeout(self.flush_timeout, flushed).await;
        flushed.unwrap_or_else(|_| Err(unavailable("records wait to be written")))
    }

    /// Returns the time up to which the records of all nodes are complete, at most `end`, if those of this node are.
    /// With `wait`, waits until they are complete up to `end`.
    async fn complete(&self, end: OffsetDateTime, wait: bool) -> Result<OffsetDateTime, StoreError> {
        let since = tokio::time::Instant::now();
        loop {
            let whole = self.repository.complete(self.run.node, end).await?;
            if whole >= end || !wait {
                return Ok(whole);
            }
            if since.elapsed() > OTHER_NODES_TIMEOUT {
                let why = "another node's records may not all be written";
                return Err(StoreError::unavailable("audit.settle", why));
            }
            tokio::time::sleep(OTHER_NODES_POLL_INTERVAL).await;
        }
    }

    /// Gives the records that are not written yet no time before `floor`, and later ones neither.
    async fn postpone(&self, floor: OffsetDateTime) -> Result<(), StoreError> {
        let (done, postponed) = oneshot::channel();
        let stopping = || StoreError::unavailable("audit.postpone", "the server is stopping");
        self.sender.send(Message::Postpone(FlushRequest { end: floor, done })).await.map_err(|_| stopping())?;
        self.urgent.notify_one();
        postponed.await.map_err(|_| stopping())
    }

    /// Reports to the other nodes that this node's records are complete up to `now`, or up to a later time if the node
    /// was silent and exports have reached that time.
    async fn mark(&self, now: OffsetDateTime) -> Result<(), StoreError> {
        let began = tokio::time::Instant::now();
        let before = self.reported_at.lock().take();
        let mut is_recent = before.is_some_and(|at| began - at < RECENT_REPORT);
        for _ in 0..MAX_MARK_ATTEMPTS {
            let passed = if is_recent { None } else { self.repository.fence(self.run.node).await? };
            if let Some(passed) = passed {
                self.postpone(passed).await?;
            }
            let whole = passed.map_or(now, |passed| passed.max(now));
            match self.written_until(whole).await {
                // A machine that was suspended does not know how long: exports may have passed records that wait.
                Err(_) if is_recent => {
                    is_recent = false;
                    continue;
                }
                written => written?,
            }
            if self.repository.mark(self.run.node, whole).await? {
                *self.reported_at.lock() = Some(began);
                return Ok(());
            }
            is_recent = false;
        }
        Err(StoreError::unavailable("audit.mark", "other nodes export later records again and again"))
    }

    /// The run of the node whose calls are recorded.
    #[must_use]
    pub fn run(&self) -> NodeRun {
        self.run
    }

    /// Reports to the other nodes the time up to which this node's records are complete, and writes the records of
    /// calls that a stopped server had begun. The first report must precede the first call.
    ///
    /// # Errors
    /// Returns the error of the store. [`StoreError::Unavailable`] also if records wait to be written.
    pub async fn reconcile(&self) -> Result<(), StoreError> {
        self.report().await?;
        self.recover().await
    }

    /// Like [`reconcile`](Self::reconcile), with the records of only those calls that are on the disk of this node.
    ///
    /// # Errors
    /// As of [`reconcile`](Self::reconcile).
    pub async fn report(&self) -> Result<(), StoreError> {
        self.mark(to_microseconds(self.clock.now())).await?;
        match &self.spool {
            Some(spool) if self.store_left(spool).await? => self.recover().await,
            _ => Ok(()),
        }
    }

    /// Writes the records of calls that a stopped server had begun.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn recover(&self) -> Result<(), StoreError> {
        // The timestamp is held until the recovered records are stored.
        let stamp = self.stamp(to_microseconds(self.clock.now()));
        let recovered = self.repository.recover(self.run, stamp.at()).await?;
        if recovered > 0 {
            self.written.notify_one();
            warn!(calls = recovered, "recorded calls that a stopped server had begun, with status 0");
        }
        Ok(())
    }

    /// Gives the database the intents that earlier processes of the node have left on its disk, without those of recorded calls.
    /// Returns whether there were any.
    async fn store_left(&self, spool: &IntentSpool) -> Result<bool, StoreError> {
        let unreadable = |error: std::io::Error| StoreError::unavailable("audit.spool", error.to_string());
        let mut found = false;
        for (run, entries) in spool.left().map_err(unreadable)? {
            for group in entries.chunks(MAX_GROUP) {
                let ids: Vec<_> = group.iter().map(|entry| entry.id).collect();
                let since = group.iter().map(|entry| entry.at).min().unwrap_or(OffsetDateTime::UNIX_EPOCH);
                let recorded = self.repository.recorded(&ids, since).await?;
                let open: Vec<_> = group.iter().filter(|entry| !recorded.contains(&entry.id)).cloned().collect();
                if !open.is_empty() {
                    found = true;
                    self.repository.begin(NodeRun { node: self.run.node, run }, &open).await?;
                }
            }
        }
        spool.forget_left().map_err(unreadable)?;
        Ok(found)
    }
}

impl AuditWriter {
    /// Waits until the queued records are written, at most `timeout`.
    pub async fn finish(self, timeout: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(timeout, self.task).await.is_err() {
            warn!("some audit records were not written before the timeout");
        }
    }
}

#[async_trait]
impl AuditTrail for BatchedAuditTrail {
    async fn begin(&self, entry: AuditEntry) -> Result<(), StoreError> {
        let (done, stored) = oneshot::channel();
        let unavailable = |why: &str| StoreError::unavailable("audit.begin", why);
        let stopping = || unavailable("the server is stopping");
        self.intents.send(QueuedIntent { entry, done }).await.map_err(|_| stopping())?;
        stored.await.map_err(|_| stopping())?
    }

    async fn keep(&self, entry: AuditEntry, early: Option<Arc<PreparedRecord>>) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        let unavailable = |why: &str| StoreError::unavailable("audit.keep", why);
        let record = Message::Record(QueuedRecord { entry, early, done: Some(done) });
        self.sender.send(record).await.map_err(|_| unavailable("the server is stopping"))?;
        self.urgent.notify_one();
        written.await.map_err(|_| unavailable("the server is stopping"))?
    }

    fn note(&self, entry: AuditEntry, early: Option<Arc<PreparedRecord>>) {
        if self.sender.try_send(Message::Record(QueuedRecord { entry, early, done: None })).is_err() {
            counter!("casement_audit_records_lost_total").increment(1);
        }
    }

    fn refused(&self, entry: AuditEntry) {
        if self.sender.try_send(Message::Refused(entry)).is_err() {
            counter!("casement_audit_records_lost_total").increment(1);
        }
    }

    fn stamp(&self, now: OffsetDateTime) -> RecordTimestamp {
        self.timestamps.stamp(now)
    }

    async fn whole_until(&self, end: OffsetDateTime) -> Result<OffsetDateTime, StoreError> {
        let now = to_microseconds(self.clock.now());
        let reached = end.min(now);
        self.written_until(reached).await?;
        self.complete(reached, end <= now).await
    }
}
