//! Audit records on their way into the database: written in groups, so that many calls share one commit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::StoreError;
use casement_domain::audit::{AuditEntry, AuditRepository, AuditTrail};
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
const SETTLING: Duration = Duration::from_secs(5);

/// A record, and who waits until it is durable.
struct Kept {
    entry: AuditEntry,
    done: Option<oneshot::Sender<Result<(), StoreError>>>,
}

/// Where calls leave their records.
pub(crate) struct GroupedTrail {
    sender: mpsc::Sender<Kept>,
    /// Somebody waits.
    urgent: Arc<Notify>,
    unwritten: watch::Receiver<Unwritten>,
    settling: Duration,
}

/// The moment of the oldest record that the writer has and the database does not; nothing, if there is none.
type Unwritten = Option<OffsetDateTime>;

/// Writes what is left there, until it is told to finish or the last [`GroupedTrail`] is gone, and everything is written.
pub(crate) struct TrailWriter {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl GroupedTrail {
    pub(crate) fn start(repository: Arc<dyn AuditRepository>) -> (Self, TrailWriter) {
        Self::lingering(repository, LINGER)
    }

    fn lingering(repository: Arc<dyn AuditRepository>, linger: Duration) -> (Self, TrailWriter) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let (urgent, stop) = (Arc::<Notify>::default(), CancellationToken::new());
        let (oldest, unwritten) = watch::channel(None);
        let task = tokio::spawn(write(repository, (receiver, oldest), Arc::clone(&urgent), linger, stop.clone()));
        (Self { sender, urgent, unwritten, settling: SETTLING }, TrailWriter { task, stop })
    }
}

impl TrailWriter {
    /// Waits until everything is written that has come until now; no longer than that takes with a database that answers.
    pub(crate) async fn finish(self, patience: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(patience, self.task).await.is_err() {
            warn!("not all audit records could be written in time");
        }
    }
}

#[async_trait]
impl AuditTrail for GroupedTrail {
    async fn keep(&self, entry: AuditEntry) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        let unavailable = |why: &str| StoreError::unavailable("audit.keep", why);
        self.sender.send(Kept { entry, done: Some(done) }).await.map_err(|_| unavailable("the server is stopping"))?;
        self.urgent.notify_one();
        written.await.map_err(|_| unavailable("the server is stopping"))?
    }

    fn note(&self, entry: AuditEntry) {
        if self.sender.try_send(Kept { entry, done: None }).is_err() {
            counter!("casement_audit_records_lost_total").increment(1);
        }
    }

    async fn written_until(&self, end: OffsetDateTime) -> Result<(), StoreError> {
        let mut unwritten = self.unwritten.clone();
        let settled = unwritten.wait_for(|oldest| oldest.is_none_or(|oldest| oldest >= end));
        let unavailable = |why: &str| StoreError::unavailable("audit.settle", why);
        match tokio::time::timeout(self.settling, settled).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(unavailable("the server is stopping")),
            Err(_) => Err(unavailable("records wait to be written")),
        }
    }
}

/// One group after the other: while one is being written, the next one gathers.
async fn write(
    repository: Arc<dyn AuditRepository>,
    (mut receiver, oldest): (mpsc::Receiver<Kept>, watch::Sender<Unwritten>),
    urgent: Arc<Notify>,
    linger: Duration,
    stop: CancellationToken,
) {
    let mut group = Vec::with_capacity(GROUP);
    // What could not be written yet, oldest first.
    let mut late: Vec<AuditEntry> = Vec::new();
    loop {
        if late.is_empty() && receiver.is_empty() {
            oldest.send_replace(None);
        }
        tokio::select! {
            biased;
            more = next_group(&mut receiver, &mut group, !late.is_empty()) => if !more { break },
            // What has come is still taken out.
            () = stop.cancelled(), if !receiver.is_closed() => {
                receiver.close();
                continue;
            }
        }
        if !receiver.is_closed() && group.iter().all(|kept| kept.done.is_none()) {
            tokio::select! {
                () = tokio::time::sleep(linger) => {}
                () = urgent.notified() => {}
                () = stop.cancelled() => {}
            }
            while group.len() < GROUP
                && let Ok(kept) = receiver.try_recv()
            {
                group.push(kept);
            }
        }
        let (entries, waiting): (Vec<_>, Vec<_>) = group.drain(..).map(|kept| (kept.entry, kept.done)).unzip();
        late.extend(entries);
        oldest.send_replace(late.iter().map(|entry| entry.at).min());
        let written = append(&*repository, &mut late).await;
        if let Err(error) = &written {
            warn!(%error, records = late.len(), "audit records are not written yet");
            counter!("casement_audit_write_failures_total").increment(1);
        }
        for done in waiting.into_iter().flatten() {
            let answer = match &written {
                Ok(()) => Ok(()),
                Err(error) => Err(StoreError::unavailable("audit.append", error.to_string())),
            };
            drop(done.send(answer));
        }
        if late.len() > WAITING {
            counter!("casement_audit_records_lost_total").increment((late.len() - WAITING) as u64);
            late.drain(..late.len() - WAITING);
        }
    }
    counter!("casement_audit_records_lost_total").increment(late.len() as u64);
}

/// Waits for records; where some are late already, no longer than until it is worth another try. `false` when there will be none.
async fn next_group(receiver: &mut mpsc::Receiver<Kept>, group: &mut Vec<Kept>, some_late: bool) -> bool {
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

    use casement_domain::AuditRecordId;
    use casement_domain::audit::{AuditService, AuthStrategy, MockAuditRepository};
    use casement_domain::testing::NOON;
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
        }
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
        let (trail, writer) = GroupedTrail::start(Arc::new(repository));
        let answers = futures_util::future::join_all((0..100).map(|n| trail.keep(entry(n)))).await;
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
        let (trail, writer) = GroupedTrail::lingering(repository(), Duration::from_secs(3600));
        for n in 0..5 {
            trail.note(entry(n));
            tokio::task::yield_now().await;
        }
        assert!(groups.lock().expect("groups").is_empty());
        trail.keep(entry(5)).await.expect("it is written");
        assert_eq!(*groups.lock().expect("groups"), [6]);
        trail.note(entry(6));
        tokio::task::yield_now().await;
        writer.finish(Duration::from_secs(60)).await;
        assert_eq!(*groups.lock().expect("groups"), [6, 1]);

        let (trail, _writer) = GroupedTrail::start(repository());
        trail.note(entry(7));
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
        let (trail, _writer) = GroupedTrail::start(Arc::new(repository));
        let began = std::time::Instant::now();
        for n in 0..20 {
            assert!(matches!(trail.keep(entry(n)).await, Err(StoreError::Unavailable { .. })));
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
        let (trail, writer) = GroupedTrail::start(Arc::new(repository));
        trail.keep(entry(1)).await.expect_err("the database is away");
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
        let (trail, writer) = GroupedTrail::start(Arc::new(repository));
        let _ = futures_util::future::join_all((1..=3).map(|n| trail.keep(entry(n)))).await;
        trail.keep(entry(4)).await.expect("it goes on");
        for n in 5..=9 {
            trail.note(entry(n));
        }
        // Somebody may hold the other end for longer.
        let began = std::time::Instant::now();
        writer.finish(Duration::from_secs(60)).await;
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(matches!(trail.keep(entry(10)).await, Err(StoreError::Unavailable { .. })));
        assert_eq!(*written.lock().expect("records"), [1, 3, 4, 5, 6, 7, 8, 9].map(|n| entry(n).id));
    }

    #[tokio::test]
    async fn a_time_is_settled_once_none_of_its_records_waits_to_be_written() {
        let is_away = Arc::new(Mutex::new(true));
        let mut repository = MockAuditRepository::new();
        let now = Arc::clone(&is_away);
        repository.expect_append().returning(move |_| if *now.lock().expect("away") { Err(away()) } else { Ok(()) });
        let (mut trail, _writer) = GroupedTrail::start(Arc::new(repository));
        trail.settling = Duration::from_millis(50);
        let behind = NOON + time::Duration::SECOND;
        trail.written_until(behind).await.expect("there is nothing yet");
        assert!(trail.keep(entry(1)).await.is_err());
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
        let (trail, writer) = GroupedTrail::start(Arc::new(repository));
        assert!(matches!(trail.keep(entry(1)).await, Err(StoreError::Unavailable { .. })));
        trail.keep(entry(2)).await.expect("the database is back");
        drop(trail);
        writer.finish(Duration::from_secs(60)).await;
        assert_eq!(*written.lock().expect("records"), [entry(1).id, entry(2).id]);
    }
}
