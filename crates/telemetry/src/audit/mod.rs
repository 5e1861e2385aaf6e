//! Audit records on their way into the database: written in groups, so that many calls share one commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::StoreError;
use casement_domain::audit::{
    AuditEntry, AuditRepository, AuditTrail, NodeRun, PreparedRecord, RecordTimestamp, RefusedAttempts,
};
use casement_domain::clock::Clock;
use metrics::counter;
use time::OffsetDateTime;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The most records in one group.
const GROUP: usize = 500;
/// How many records wait at most; while the database is away, calls that change something fail anyhow.
const WAITING: usize = 50_000;
/// How long records that nobody waits for wait for others: a statement and a commit for each would cost more than the calls do.
const LINGER: Duration = Duration::from_millis(10);
/// How long a group that could not be written waits before it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long whoever needs all records of a time waits for those that are not written yet.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it waits for what another node tells every [`Node::HEARTBEAT`], and how often it looks.
const SETTLING_ELSEWHERE: Duration = Duration::from_secs(7);
const LOOK_ELSEWHERE: Duration = Duration::from_millis(250);

/// A record, and who waits until it is durable.
struct Kept {
    entry: AuditEntry,
    /// What holds the record's moment; without it, the moment is as late as it has to be.
    early: Option<Arc<PreparedRecord>>,
    done: Option<oneshot::Sender<Result<(), StoreError>>>,
}

/// What the writer is told.
enum Message {
    Record(Kept),
    Refused(AuditEntry),
    /// From now on no record is from before this moment; to be told when those that are from before are written.
    FlushRequest(FlushRequest),
}

struct FlushRequest {
    end: OffsetDateTime,
    done: oneshot::Sender<()>,
}

/// A call that begins, and who waits until that is stored.
struct Beginning {
    entry: AuditEntry,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// Where calls leave their records.
pub struct BatchedAuditTrail {
    sender: mpsc::Sender<Message>,
    beginnings: mpsc::Sender<Beginning>,
    /// Somebody waits.
    urgent: Arc<Notify>,
    moments: Arc<Moments>,
    repository: Arc<dyn AuditRepository>,
    clock: Arc<dyn Clock>,
    run: NodeRun,
    settling: Duration,
}

/// Which moments a record may still be of.
struct Moments(watch::Sender<Held>);

#[derive(Default)]
struct Held {
    /// No record that comes is from before.
    floor: Option<OffsetDateTime>,
    /// The moments of records that are stored by another way, and may be at any time.
    stamps: BTreeMap<u64, OffsetDateTime>,
    next: u64,
}

/// Lets go of a moment.
struct Hold {
    moments: Arc<Moments>,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.moments.0.send_modify(|held| {
            held.stamps.remove(&self.number);
        });
    }
}

impl Moments {
    fn stamp(self: &Arc<Self>, now: OffsetDateTime) -> RecordTimestamp {
        let (mut at, mut number) = (now, 0);
        self.0.send_modify(|held| {
            at = held.floor.map_or(now, |floor| floor.max(now));
            number = held.next;
            held.next += 1;
            held.stamps.insert(number, at);
        });
        RecordTimestamp::held(at, Hold { moments: Arc::clone(self), number })
    }

    fn raise(&self, floor: OffsetDateTime) {
        self.0.send_modify(|held| held.floor = held.floor.max(Some(floor)));
    }

    /// Returns once no stamp is from before `end`.
    async fn released(&self, end: OffsetDateTime) {
        let mut held = self.0.subscribe();
        // The sender is here.
        held.wait_for(|held| held.stamps.values().all(|at| *at >= end)).await.ok();
    }
}

/// Writes what is left there, until it is told to finish or the last [`BatchedAuditTrail`] is gone, and everything is written.
pub struct AuditWriter {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl BatchedAuditTrail {
    /// Starts to write records to `repository`.
    pub fn start(repository: Arc<dyn AuditRepository>, clock: Arc<dyn Clock>, run: NodeRun) -> (Self, AuditWriter) {
        Self::lingering(repository, clock, run, LINGER)
    }

    fn lingering(
        repository: Arc<dyn AuditRepository>,
        clock: Arc<dyn Clock>,
        run: NodeRun,
        linger: Duration,
    ) -> (Self, AuditWriter) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let (beginnings, beginning) = mpsc::channel(WAITING);
        let (urgent, stop) = (Arc::<Notify>::default(), CancellationToken::new());
        let moments = Arc::new(Moments(watch::Sender::new(Held::default())));
        let writer = Writer {
            repository: Arc::clone(&repository),
            moments: Arc::clone(&moments),
            clock: Arc::clone(&clock),
            refused: RefusedAttempts::default(),
            late: Vec::new(),
            held: Vec::new(),
            settling: Vec::new(),
        };
        let task = tokio::spawn(writer.write(receiver, Arc::clone(&urgent), linger, stop.clone()));
        tokio::spawn(begin(Arc::clone(&repository), run, beginning));
        let trail = Self { sender, beginnings, urgent, moments, repository, clock, run, settling: FLUSH_TIMEOUT };
        (trail, AuditWriter { task, stop })
    }

    /// Waits until none of this node's records from before `end` waits to be written, and none will come any more.
    async fn written_until(&self, end: OffsetDateTime) -> Result<(), StoreError> {
        let unavailable = |why: &str| StoreError::unavailable("audit.settle", why);
        let (done, written) = oneshot::channel();
        let settled = async {
            let stopping = || unavailable("the server is stopping");
            self.sender.send(Message::FlushRequest(FlushRequest { end, done })).await.map_err(|_| stopping())?;
            self.urgent.notify_one();
            written.await.map_err(|_| stopping())?;
            self.moments.released(end).await;
            Ok(())
        };
        let settled = tokio::time::timeout(self.settling, settled).await;
        settled.unwrap_or_else(|_| Err(unavailable("records wait to be written")))
    }

    /// Until when the records of the other nodes are complete, `end` at most. Waits for those that are not as far, as long as they may be.
    async fn whole_elsewhere(&self, end: OffsetDateTime, wait: bool) -> Result<OffsetDateTime, StoreError> {
        let since = tokio::time::Instant::now();
        loop {
            let others = self.repository.whole_elsewhere(self.run.node).await?;
            match others {
                Some(whole) if whole < end && !wait => return Ok(whole),
                Some(whole) if whole < end && since.elapsed() > SETTLING_ELSEWHERE => {
                    return Err(StoreError::unavailable(
                        "audit.settle",
                        "another node's records may not all be written",
                    ));
                }
                Some(whole) if whole < end => tokio::time::sleep(LOOK_ELSEWHERE).await,
                _ => return Ok(end),
            }
        }
    }

    /// Tells the other nodes how far this one's records are complete, and records the calls that nobody completes any more.
    pub async fn tend(&self) -> Result<(), StoreError> {
        let now = to_microseconds(self.clock.now());
        self.written_until(now).await?;
        self.repository.mark(self.run.node, now).await?;
        // Held until they are stored.
        let stamp = self.stamp(now);
        let recovered = self.repository.recover(self.run, stamp.at()).await?;
        if recovered > 0 {
            warn!(calls = recovered, "calls had begun when their server ended; they are recorded with status 0");
        }
        Ok(())
    }
}

impl AuditWriter {
    /// Waits until everything is written that has come until now; no longer than that takes with a database that answers.
    pub async fn finish(self, patience: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(patience, self.task).await.is_err() {
            warn!("not all audit records could be written in time");
        }
    }
}

#[async_trait]
impl AuditTrail for BatchedAuditTrail {
    async fn begin(&self, entry: AuditEntry) -> Result<(), StoreError> {
        let (done, stored) = oneshot::channel();
        let unavailable = |why: &str| StoreError::unavailable("audit.begin", why);
        let stopping = || unavailable("the server is stopping");
        self.beginnings.send(Beginning { entry, done }).await.map_err(|_| stopping())?;
        stored.await.map_err(|_| stopping())?
    }

    async fn keep(&self, entry: AuditEntry, early: Option<Arc<PreparedRecord>>) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        let unavailable = |why: &str| StoreError::unavailable("audit.keep", why);
        let kept = Message::Record(Kept { entry, early, done: Some(done) });
        self.sender.send(kept).await.map_err(|_| unavailable("the server is stopping"))?;
        self.urgent.notify_one();
        written.await.map_err(|_| unavailable("the server is stopping"))?
    }

    fn note(&self, entry: AuditEntry, early: Option<Arc<PreparedRecord>>) {
        if self.sender.try_send(Message::Record(Kept { entry, early, done: None })).is_err() {
            counter!("casement_audit_records_lost_total").increment(1);
        }
    }

    fn refused(&self, entry: AuditEntry) {
        if self.sender.try_send(Message::Refused(entry)).is_err() {
            counter!("casement_audit_records_lost_total").increment(1);
        }
    }

    fn stamp(&self, now: OffsetDateTime) -> RecordTimestamp {
        self.moments.stamp(now)
    }

    async fn whole_until(&self, end: OffsetDateTime) -> Result<OffsetDateTime, StoreError> {
        let now = to_microseconds(self.clock.now());
        let reached = end.min(now);
        self.written_until(reached).await?;
        self.whole_elsewhere(reached, end <= now).await
    }
}

/// As the database keeps it.
fn to_microseconds(at: OffsetDateTime) -> OffsetDateTime {
    at.replace_nanosecond(at.microsecond() * 1000).unwrap_or(at)
}

/// One group after the other: while one is being stored, the next one gathers.
async fn begin(repository: Arc<dyn AuditRepository>, run: NodeRun, mut receiver: mpsc::Receiver<Beginning>) {
    let mut group = Vec::with_capacity(GROUP);
    while receiver.recv_many(&mut group, GROUP).await > 0 {
        let (entries, waiting): (Vec<_>, Vec<_>) = group.drain(..).map(|one| (one.entry, one.done)).unzip();
        let stored = repository.begin(run, &entries).await;
        if let Err(error) = &stored {
            warn!(%error, calls = entries.len(), "calls that begin cannot be recorded");
            counter!("casement_audit_write_failures_total").increment(1);
        }
        let mut abandoned = Vec::new();
        for (entry, done) in entries.iter().zip(waiting) {
            // The call does not go on, so nothing of it was done.
            let answer = stored
                .as_ref()
                .map_or_else(|error| Err(StoreError::unavailable("audit.begin", error.to_string())), |()| Ok(()));
            if done.send(answer).is_err() {
                abandoned.push(entry.id);
            }
        }
        if !abandoned.is_empty()
            && let Err(error) = repository.withdraw(&abandoned).await
        {
            warn!(%error, calls = abandoned.len(), "calls that did not go on are recorded as begun");
        }
    }
}

struct Writer {
    repository: Arc<dyn AuditRepository>,
    moments: Arc<Moments>,
    clock: Arc<dyn Clock>,
    refused: RefusedAttempts,
    /// What is not written yet, oldest first.
    late: Vec<AuditEntry>,
    /// What holds the moments of some of them.
    held: Vec<Arc<PreparedRecord>>,
    settling: Vec<FlushRequest>,
}

impl Writer {
    /// One group after the other: while one is being written, the next one gathers.
    async fn write(
        mut self,
        mut receiver: mpsc::Receiver<Message>,
        urgent: Arc<Notify>,
        linger: Duration,
        stop: CancellationToken,
    ) {
        let mut group = Vec::with_capacity(GROUP);
        loop {
            tokio::select! {
                biased;
                more = next_group(&mut receiver, &mut group, !self.late.is_empty()) => if !more { break },
                // What has come is still taken out.
                () = stop.cancelled(), if !receiver.is_closed() => {
                    receiver.close();
                    continue;
                }
            }
            if !receiver.is_closed() && !group.iter().any(is_awaited) {
                tokio::select! {
                    () = tokio::time::sleep(linger) => {}
                    () = urgent.notified() => {}
                    () = stop.cancelled() => {}
                }
                while group.len() < GROUP
                    && let Ok(message) = receiver.try_recv()
                {
                    group.push(message);
                }
            }
            self.write_group(&mut group).await;
        }
        let now = to_microseconds(self.clock.now());
        for entry in self.refused.finish() {
            self.file(AuditEntry { at: now, ..entry });
        }
        // Whoever waits for the end has the patience for a few tries.
        while append(&*self.repository, &mut self.late).await.is_err() {
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn write_group(&mut self, group: &mut Vec<Message>) {
        let mut waiting = Vec::new();
        for message in group.drain(..) {
            match message {
                Message::Record(kept) => waiting.extend(self.take(kept)),
                Message::Refused(entry) => {
                    if let Some(entry) = self.refused.take(entry) {
                        self.file(entry);
                    }
                }
                Message::FlushRequest(settle) => {
                    self.moments.raise(settle.end);
                    self.settling.push(settle);
                }
            }
        }
        let now = to_microseconds(self.clock.now());
        for entry in self.refused.due(now) {
            self.file(AuditEntry { at: now, ..entry });
        }
        let written = append(&*self.repository, &mut self.late).await;
        if let Err(error) = &written {
            warn!(%error, records = self.late.len(), "audit records are not written yet");
            counter!("casement_audit_write_failures_total").increment(1);
        }
        for done in waiting {
            let answer = match &written {
                Ok(()) => Ok(()),
                Err(error) => Err(StoreError::unavailable("audit.append", error.to_string())),
            };
            drop(done.send(answer));
        }
        if self.late.len() > WAITING {
            counter!("casement_audit_records_lost_total").increment((self.late.len() - WAITING) as u64);
            self.late.drain(..self.late.len() - WAITING);
        }
        if self.late.is_empty() {
            self.held.clear();
        }
        let oldest = self.late.iter().map(|entry| entry.at).min();
        let settled =
            |settle: &mut FlushRequest| settle.done.is_closed() || oldest.is_none_or(|oldest| oldest >= settle.end);
        for settle in self.settling.extract_if(.., settled) {
            settle.done.send(()).ok();
        }
    }

    fn take(&mut self, kept: Kept) -> Option<oneshot::Sender<Result<(), StoreError>>> {
        let Kept { entry, early, done } = kept;
        match early {
            Some(early) => {
                self.held.push(early);
                self.late.push(entry);
            }
            None => self.file(entry),
        }
        done
    }

    /// Exports that have ended at the floor would never see what is from before.
    fn file(&mut self, entry: AuditEntry) {
        let at = self.moments.0.borrow().floor.map_or(entry.at, |floor| floor.max(entry.at));
        self.late.push(AuditEntry { at, ..entry });
    }
}

fn is_awaited(message: &Message) -> bool {
    match message {
        Message::Record(kept) => kept.done.is_some(),
        Message::Refused(_) => false,
        Message::FlushRequest(_) => true,
    }
}

/// Waits for records; where some are late already, no longer than until it is worth another try. `false` when there will be none.
async fn next_group(receiver: &mut mpsc::Receiver<Message>, group: &mut Vec<Message>, some_late: bool) -> bool {
    let coming = receiver.recv_many(group, GROUP);
    if !some_late {
        return coming.await > 0;
    }
    if tokio::time::timeout(AGAIN, coming).await == Ok(0) {
        // Nothing more comes. What is late is tried for as long as whoever waits for the end has patience.
        tokio::time::sleep(AGAIN).await;
    }
    true
}

/// Writes all of them. Records that the database will never take are taken out one by one, and only these are lost.
async fn append(repository: &dyn AuditRepository, late: &mut Vec<AuditEntry>) -> Result<(), StoreError> {
    while !late.is_empty() {
        let group = late.len().min(GROUP);
        match repository.append(&late[..group]).await {
            Ok(()) => drop(late.drain(..group)),
            Err(StoreError::Broken { .. }) if group > 1 => one_by_one(repository, late, group).await?,
            Err(StoreError::Broken { operation, source }) => {
                let lost = late.remove(0);
                warn!(error = %source, record = %lost.id, path = lost.path, "an audit record is lost");
                counter!("casement_audit_records_lost_total").increment(1);
                return Err(StoreError::Broken { operation, source });
            }
            Err(away) => return Err(away),
        }
    }
    Ok(())
}

async fn one_by_one(
    repository: &dyn AuditRepository,
    late: &mut Vec<AuditEntry>,
    group: usize,
) -> Result<(), StoreError> {
    for _ in 0..group {
        match repository.append(&late[..1]).await {
            Err(away @ StoreError::Unavailable { .. }) => return Err(away),
            Err(StoreError::Broken { source, .. }) => {
                warn!(error = %source, record = %late[0].id, path = late[0].path, "an audit record is lost");
                counter!("casement_audit_records_lost_total").increment(1);
            }
            Ok(()) => {}
        }
        late.remove(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use casement_domain::audit::{AuditService, AuthStrategy, MockAuditRepository};
    use casement_domain::testing::{FixedClock, NOON};
    use casement_domain::{AuditRecordId, NodeId, NodeRunId};
    use ulid::Ulid;

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
        BatchedAuditTrail::start(Arc::new(repository), clock(), run())
    }

    fn away() -> StoreError {
        StoreError::unavailable("audit.append", "away")
    }

    #[tokio::test]
    async fn calls_at_once_share_a_commit_and_are_answered_when_it_is_done() {
        let groups = Arc::new(Mutex::new(Vec::new()));
        let mut repository = MockAuditRepository::new();
        let seen = Arc::clone(&groups);
        repository.expect_append().returning(move |entries| {
            seen.lock().expect("groups").push(entries.len());
            Ok(())
        });
        let (trail, writer) = started(repository);
        let answers = futures_util::future::join_all((0..100).map(|n| trail.keep(entry(n), None))).await;
        assert!(answers.iter().all(Result::is_ok));
        drop(trail);
        writer.finish(Duration::from_secs(5)).await;
        let groups = groups.lock().expect("groups");
        assert_eq!(groups.iter().sum::<usize>(), 100);
        assert!(groups.len() < 10, "{groups:?}");
    }

    #[tokio::test]
    async fn records_that_nobody_waits_for_wait_for_others_until_somebody_does() {
        let groups = Arc::new(Mutex::new(Vec::new()));
        let repository = || {
            let (mut repository, seen) = (MockAuditRepository::new(), Arc::clone(&groups));
            repository.expect_append().returning(move |entries| {
                seen.lock().expect("groups").push(entries.len());
                Ok(())
            });
            Arc::new(repository)
        };
        let (trail, writer) = BatchedAuditTrail::lingering(repository(), clock(), run(), Duration::from_secs(3600));
        for n in 0..5 {
            trail.note(entry(n), None);
            tokio::task::yield_now().await;
        }
        assert!(groups.lock().expect("groups").is_empty());
        trail.keep(entry(5), None).await.expect("it is written");
        assert_eq!(*groups.lock().expect("groups"), [6]);
        trail.note(entry(6), None);
        tokio::task::yield_now().await;
        writer.finish(Duration::from_secs(60)).await;
        assert_eq!(*groups.lock().expect("groups"), [6, 1]);

        let (trail, _writer) = BatchedAuditTrail::start(repository(), clock(), run());
        trail.note(entry(7), None);
        let written = async {
            while groups.lock().expect("groups").len() < 3 {
                tokio::time::sleep(LINGER).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), written).await.expect("nobody else comes");
    }

    #[tokio::test]
    async fn while_the_database_is_away_every_call_is_told_so_and_none_waits_for_its_return() {
        let mut repository = MockAuditRepository::new();
        repository.expect_append().returning(|_| Err(away()));
        let (trail, _writer) = started(repository);
        let began = std::time::Instant::now();
        for n in 0..20 {
            assert!(matches!(trail.keep(entry(n), None).await, Err(StoreError::Unavailable { .. })));
        }
        assert!(began.elapsed() < AGAIN, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn what_is_late_at_the_end_is_tried_until_the_database_is_back() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut repository = MockAuditRepository::new();
        let (seen, mut tries) = (Arc::clone(&written), 0);
        repository.expect_append().returning(move |entries| {
            tries += 1;
            if tries < 4 {
                return Err(away());
            }
            seen.lock().expect("records").extend(entries.iter().map(|entry| entry.id));
            Ok(())
        });
        let (trail, writer) = started(repository);
        trail.keep(entry(1), None).await.expect_err("the database is away");
        drop(trail);
        writer.finish(Duration::from_secs(60)).await;
        assert_eq!(*written.lock().expect("records"), [entry(1).id]);
    }

    #[tokio::test]
    async fn a_record_that_the_database_never_takes_holds_no_other_up() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut repository = MockAuditRepository::new();
        let seen = Arc::clone(&written);
        repository.expect_append().returning(move |entries| {
            if entries.iter().any(|one| one.id == entry(2).id) {
                return Err(StoreError::Broken { operation: "audit.append", source: "never".into() });
            }
            seen.lock().expect("records").extend(entries.iter().map(|entry| entry.id));
            Ok(())
        });
        let (trail, writer) = started(repository);
        let _ = futures_util::future::join_all((1..=3).map(|n| trail.keep(entry(n), None))).await;
        trail.keep(entry(4), None).await.expect("it goes on");
        for n in 5..=9 {
            trail.note(entry(n), None);
        }
        // Somebody may hold the other end for longer.
        let began = std::time::Instant::now();
        writer.finish(Duration::from_secs(60)).await;
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(matches!(trail.keep(entry(10), None).await, Err(StoreError::Unavailable { .. })));
        assert_eq!(*written.lock().expect("records"), [1, 3, 4, 5, 6, 7, 8, 9].map(|n| entry(n).id));
    }

    #[tokio::test]
    async fn a_time_is_settled_once_none_of_its_records_waits_to_be_written() {
        let is_away = Arc::new(Mutex::new(true));
        let mut repository = MockAuditRepository::new();
        let now = Arc::clone(&is_away);
        repository.expect_append().returning(move |_| if *now.lock().expect("away") { Err(away()) } else { Ok(()) });
        let (mut trail, _writer) = started(repository);
        trail.settling = Duration::from_millis(50);
        let behind = NOON + time::Duration::SECOND;
        trail.written_until(NOON).await.expect("there is nothing yet");
        assert!(trail.keep(entry(1), None).await.is_err());
        trail.written_until(NOON).await.expect("the end is exclusive");
        assert!(matches!(trail.written_until(behind).await, Err(StoreError::Unavailable { .. })));
        *is_away.lock().expect("away") = false;
        trail.settling = Duration::from_secs(60);
        trail.written_until(behind).await.expect("it is written now");
    }

    #[tokio::test]
    async fn a_call_is_told_at_once_that_its_record_is_late_and_the_record_is_written_all_the_same() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut repository = MockAuditRepository::new();
        repository.expect_append().times(1).returning(|_| Err(away()));
        let seen = Arc::clone(&written);
        repository.expect_append().returning(move |entries| {
            seen.lock().expect("records").extend(entries.iter().map(|entry| entry.id));
            Ok(())
        });
        let (trail, writer) = started(repository);
        assert!(matches!(trail.keep(entry(1), None).await, Err(StoreError::Unavailable { .. })));
        trail.keep(entry(2), None).await.expect("the database is back");
        drop(trail);
        writer.finish(Duration::from_secs(60)).await;
        assert_eq!(*written.lock().expect("records"), [entry(1).id, entry(2).id]);
    }

    #[tokio::test]
    async fn what_was_noted_before_an_export_is_in_it_and_what_comes_later_is_not_from_before_its_end() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut repository = MockAuditRepository::new();
        let seen = Arc::clone(&written);
        repository.expect_append().returning(move |entries| {
            seen.lock().expect("records").extend(entries.iter().map(|entry| (entry.id, entry.at)));
            Ok(())
        });
        repository.expect_whole_elsewhere().returning(|_| Ok(None));
        let (trail, _writer) = started(repository);
        trail.note(entry(1), None);
        let until = trail.whole_until(NOW + time::Duration::HOUR).await.expect("whole");
        assert_eq!(until, NOW);
        assert_eq!(*written.lock().expect("records"), [(entry(1).id, NOON)]);
        // Its answer was made before, and its thread was held up.
        trail.keep(entry(2), None).await.expect("written");
        assert_eq!(written.lock().expect("records")[1], (entry(2).id, until));
        assert!(trail.stamp(NOON).at() >= until);
    }

    #[tokio::test]
    async fn an_export_waits_for_a_record_that_may_still_be_stored_by_another_way() {
        let mut repository = MockAuditRepository::new();
        repository.expect_whole_elsewhere().returning(|_| Ok(None));
        let (mut trail, _writer) = started(repository);
        trail.settling = Duration::from_millis(50);
        let stamp = trail.stamp(NOON);
        assert_eq!(trail.whole_until(NOON).await.expect("the end is exclusive"), NOON);
        let behind = NOON + time::Duration::MICROSECOND;
        assert!(matches!(trail.whole_until(behind).await, Err(StoreError::Unavailable { .. })));
        trail.settling = Duration::from_secs(60);
        drop(stamp);
        assert_eq!(trail.whole_until(behind).await.expect("nothing is held"), behind);
    }

    #[tokio::test]
    async fn a_range_ends_where_the_records_of_every_node_are_complete() {
        let told = Arc::new(Mutex::new(NOON));
        let mut repository = MockAuditRepository::new();
        let tells = Arc::clone(&told);
        repository.expect_whole_elsewhere().returning(move |_| Ok(Some(*tells.lock().expect("told"))));
        let (trail, _writer) = started(repository);
        // A range that is past is waited for, one that goes on ends there.
        assert_eq!(trail.whole_until(NOW + time::Duration::HOUR).await.expect("whole"), NOON);
        let past = NOON + time::Duration::SECOND;
        let (whole, ()) = tokio::join!(trail.whole_until(past), async {
            tokio::time::sleep(LOOK_ELSEWHERE).await;
            *told.lock().expect("told") = past;
        });
        assert_eq!(whole.expect("whole"), past);
    }

    #[tokio::test]
    async fn refused_tries_that_repeat_leave_two_records_and_none_is_lost_at_the_end() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut repository = MockAuditRepository::new();
        let seen = Arc::clone(&written);
        repository.expect_append().returning(move |entries| {
            seen.lock().expect("records").extend(entries.iter().map(|entry| (entry.id, entry.count)));
            Ok(())
        });
        let (trail, writer) = started(repository);
        for n in 0..1000 {
            trail.refused(AuditEntry { at: NOW, ..entry(n) });
        }
        writer.finish(Duration::from_secs(60)).await;
        assert_eq!(*written.lock().expect("records"), [(entry(0).id, 1), (entry(999).id, 999)]);
    }

    #[tokio::test]
    async fn calls_that_begin_at_once_share_a_commit_and_one_that_does_not_go_on_is_forgotten() {
        let (groups, withdrawn) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let mut repository = MockAuditRepository::new();
        let (seen, gone) = (Arc::clone(&groups), Arc::clone(&withdrawn));
        repository.expect_begin().returning(move |of, entries| {
            assert_eq!(of, run());
            seen.lock().expect("groups").push(entries.len());
            Ok(())
        });
        repository.expect_withdraw().returning(move |calls| {
            gone.lock().expect("calls").extend_from_slice(calls);
            Ok(())
        });
        let (trail, _writer) = started(repository);
        let mut hung_up = Box::pin(trail.begin(entry(1000)));
        assert!(futures_util::poll!(&mut hung_up).is_pending());
        drop(hung_up);
        let begun = futures_util::future::join_all((0..100).map(|n| trail.begin(entry(n)))).await;
        assert!(begun.iter().all(Result::is_ok));
        assert!(groups.lock().expect("groups").len() < 10);
        let forgotten = async {
            while withdrawn.lock().expect("calls").is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), forgotten).await.expect("it is withdrawn");
        assert_eq!(*withdrawn.lock().expect("calls"), [entry(1000).id]);
    }

    #[tokio::test]
    async fn a_call_that_cannot_be_stored_as_begun_was_not_done() {
        let mut repository = MockAuditRepository::new();
        repository.expect_begin().returning(|_, _| Err(away().half_done()));
        let (trail, _writer) = started(repository);
        let refused = trail.begin(entry(1)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable { maybe_done: false, .. })));
    }
}
