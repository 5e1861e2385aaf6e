//! The tasks that write audit records and intents, group by group.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::audit::{AuditEntry, AuditRepository, AuthStrategy, NodeRun, PreparedRecord, RefusedAttempts};
use casement_domain::clock::Clock;
use casement_domain::{AuditRecordId, StoreError};
use metrics::counter;
use time::OffsetDateTime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::spool::IntentSpool;
use super::timestamps::Timestamps;

/// The maximum number of records in one group.
pub(super) const MAX_GROUP: usize = 500;
/// The maximum number of queued records. While the database is unavailable, changing calls fail anyway.
pub(super) const MAX_QUEUED: usize = 50_000;
/// The pause before a group that could not be written is retried.
pub(super) const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// A record, and the sender that reports to a waiting call that the record is durable.
pub(super) struct QueuedRecord {
    pub(super) entry: AuditEntry,
    /// Holds the record's timestamp; if it is `None`, the writer may move the timestamp forward.
    pub(super) early: Option<Arc<PreparedRecord>>,
    pub(super) done: Option<oneshot::Sender<Result<(), StoreError>>>,
}

/// A message to the writer.
pub(super) enum Message {
    Record(QueuedRecord),
    Refused(AuditEntry),
    /// From now on no record gets a timestamp before `end`. Replies when the records before `end` are written.
    Flush(FlushRequest),
    /// From now on no record gets a timestamp before `end`, those that wait to be written included. Replies at once.
    Postpone(FlushRequest),
}

pub(super) struct FlushRequest {
    pub(super) end: OffsetDateTime,
    pub(super) done: oneshot::Sender<()>,
}

/// The intent of a call that begins, and the sender that reports to the call that the intent is stored.
pub(super) struct QueuedIntent {
    pub(super) entry: AuditEntry,
    pub(super) done: oneshot::Sender<Result<(), StoreError>>,
}

/// Stores intents in groups: while a group is being stored, the next one is collected.
pub(super) async fn begin(
    repository: Arc<dyn AuditRepository>,
    run: NodeRun,
    spool: Option<Arc<IntentSpool>>,
    mut receiver: mpsc::Receiver<QueuedIntent>,
) {
    let mut group = Vec::with_capacity(MAX_GROUP);
    while receiver.recv_many(&mut group, MAX_GROUP).await > 0 {
        let (entries, waiting): (Vec<_>, Vec<_>) = group.drain(..).map(|one| (one.entry, one.done)).unzip();
        let stored = repository.begin(run, &entries).await;
        if let Err(error) = &stored {
            warn!(%error, calls = entries.len(), "cannot store audit intents");
            counter!("casement_audit_write_failures_total").increment(1);
        }
        let is_away = matches!(stored, Err(StoreError::Unavailable { .. }));
        let spooled = is_away && spool.as_ref().is_some_and(|spool| store_on_disk(spool, &entries));
        let mut abandoned = Vec::new();
        for (entry, done) in entries.iter().zip(waiting) {
            // The call does not proceed, so its outcome is known: `maybe_done` is false.
            let answer = match &stored {
                Err(error) if !(spooled && may_be_on_disk(entry)) => {
                    Err(StoreError::unavailable("audit.begin", error.to_string()))
                }
                _ => Ok(()),
            };
            if done.send(answer).is_err() {
                abandoned.push(entry.id);
            }
        }
        if spooled && let Some(spool) = &spool {
            close(spool, &abandoned);
        } else if !abandoned.is_empty()
            && let Err(error) = repository.withdraw(&abandoned).await
        {
            warn!(%error, calls = abandoned.len(), "cannot withdraw the audit intents of cancelled calls");
        }
    }
}

/// Returns whether the intent of a call may be stored on the disk of this node: a session's token opens that session alone.
fn may_be_on_disk(entry: &AuditEntry) -> bool {
    entry.auth_strategy == AuthStrategy::SessionToken
}

/// Stores the intents that may be on disk. Returns whether they are stored.
fn store_on_disk(spool: &IntentSpool, entries: &[AuditEntry]) -> bool {
    let entries: Vec<_> = entries.iter().filter(|entry| may_be_on_disk(entry)).cloned().collect();
    match spool.append(&entries) {
        Ok(()) => true,
        Err(error) => {
            warn!(%error, calls = entries.len(), "cannot store audit intents on the disk of this node");
            false
        }
    }
}

/// Removes intents from the disk of this node.
fn close(spool: &IntentSpool, calls: &[AuditRecordId]) {
    if let Err(error) = spool.close(calls) {
        // The next start of the node finds that the calls are recorded.
        warn!(%error, "cannot remove audit intents from the disk of this node");
    }
}

pub(super) struct Writer {
    pub(super) repository: Arc<dyn AuditRepository>,
    pub(super) timestamps: Arc<Timestamps>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) refused: RefusedAttempts,
    /// The records that are not written yet, oldest first.
    pub(super) unwritten: Vec<AuditEntry>,
    /// The prepared records that hold the timestamps of unwritten records.
    pub(super) held: Vec<Arc<PreparedRecord>>,
    pub(super) flushes: Vec<FlushRequest>,
    /// Notified when records are written.
    pub(super) written: Arc<Notify>,
    pub(super) spool: Option<Arc<IntentSpool>>,
}

impl Writer {
    /// Writes records in groups: while a group is being written, the next one is collected.
    pub(super) async fn write(
        mut self,
        mut receiver: mpsc::Receiver<Message>,
        urgent: Arc<Notify>,
        collect_interval: Duration,
        stop: CancellationToken,
    ) {
        let mut group = Vec::with_capacity(MAX_GROUP);
        loop {
            tokio::select! {
                biased;
                more = next_group(&mut receiver, &mut group, !self.unwritten.is_empty()) => if !more { break },
                // The messages in the queue are still read.
                () = stop.cancelled(), if !receiver.is_closed() => {
                    receiver.close();
                    continue;
                }
            }
            if !receiver.is_closed() && !group.iter().any(is_awaited) {
                tokio::select! {
                    () = tokio::time::sleep(collect_interval) => {}
                    () = urgent.notified() => {}
                    () = stop.cancelled() => {}
                }
                while group.len() < MAX_GROUP
                    && let Ok(message) = receiver.try_recv()
                {
                    group.push(message);
                }
            }
            self.write_group(&mut group).await;
        }
        let now = to_microseconds(self.clock.now());
        for entry in self.refused.finish() {
            self.add_record(AuditEntry { at: now, ..entry });
        }
        // Retries until the timeout of `finish`.
        while append(&*self.repository, &mut self.unwritten).await.is_err() {
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
    }

    async fn write_group(&mut self, group: &mut Vec<Message>) {
        let mut waiting = Vec::new();
        for message in group.drain(..) {
            match message {
                Message::Record(record) => waiting.extend(self.take(record)),
                Message::Refused(entry) => {
                    if let Some(entry) = self.refused.take(entry) {
                        self.add_record(entry);
                    }
                }
                Message::Flush(flush) => {
                    self.timestamps.raise(flush.end);
                    self.flushes.push(flush);
                }
                Message::Postpone(FlushRequest { end, done }) => {
                    self.postpone(end);
                    done.send(()).ok();
                }
            }
        }
        let now = to_microseconds(self.clock.now());
        for entry in self.refused.due(now) {
            self.add_record(AuditEntry { at: now, ..entry });
        }
        let some = !self.unwritten.is_empty();
        let spool = self.spool.clone().filter(|spool| spool.is_used());
        let ids: Vec<_> = spool.iter().flat_map(|_| self.unwritten.iter().map(|entry| entry.id)).collect();
        let written = append(&*self.repository, &mut self.unwritten).await;
        if let Some(spool) = spool {
            // The records that are still to be written are the last ones.
            close(&spool, &ids[..ids.len().saturating_sub(self.unwritten.len())]);
        }
        if some && written.is_ok() {
            self.written.notify_one();
        }
        if let Err(error) = &written {
            warn!(%error, records = self.unwritten.len(), "cannot write audit records; retrying");
            counter!("casement_audit_write_failures_total").increment(1);
        }
        for done in waiting {
            let answer = match &written {
                Ok(()) => Ok(()),
                Err(error) => Err(StoreError::unavailable("audit.append", error.to_string())),
            };
            drop(done.send(answer));
        }
        if self.unwritten.len() > MAX_QUEUED {
            counter!("casement_audit_records_lost_total").increment((self.unwritten.len() - MAX_QUEUED) as u64);
            self.unwritten.drain(..self.unwritten.len() - MAX_QUEUED);
        }
        if self.unwritten.is_empty() {
            self.held.clear();
        }
        let oldest = self.unwritten.iter().map(|entry| entry.at).min();
        let flushed =
            |flush: &mut FlushRequest| flush.done.is_closed() || oldest.is_none_or(|oldest| oldest >= flush.end);
        for flush in self.flushes.extract_if(.., flushed) {
            flush.done.send(()).ok();
        }
    }

    fn postpone(&mut self, floor: OffsetDateTime) {
        self.timestamps.raise(floor);
        self.unwritten.iter_mut().for_each(|entry| entry.at = entry.at.max(floor));
        // A record that another statement stored at its earlier time is stored a second time, because exports may have
        // passed the first.
        self.held.clear();
    }

    fn take(&mut self, record: QueuedRecord) -> Option<oneshot::Sender<Result<(), StoreError>>> {
        let QueuedRecord { entry, early, done } = record;
        match early {
            Some(early) => {
                self.held.push(early);
                self.unwritten.push(entry);
            }
            None => self.add_record(entry),
        }
        done
    }

    /// Adds a record, with the floor as its earliest timestamp: exports up to the floor are complete and would miss
    /// earlier records.
    fn add_record(&mut self, entry: AuditEntry) {
        let at = self.timestamps.floor().map_or(entry.at, |floor| floor.max(entry.at));
        self.unwritten.push(AuditEntry { at, ..entry });
    }
}

fn is_awaited(message: &Message) -> bool {
    match message {
        Message::Record(record) => record.done.is_some(),
        Message::Refused(_) => false,
        Message::Flush(_) | Message::Postpone(_) => true,
    }
}

/// Waits for messages; if `some_late` records must be retried, at most for the backoff. Returns `false` when the queue
/// is closed and empty and there is nothing to retry.
async fn next_group(receiver: &mut mpsc::Receiver<Message>, group: &mut Vec<Message>, some_late: bool) -> bool {
    let coming = receiver.recv_many(group, MAX_GROUP);
    if !some_late {
        return coming.await > 0;
    }
    if tokio::time::timeout(RETRY_BACKOFF, coming).await == Ok(0) {
        // The queue is closed, so only the retries remain, until the timeout of `finish`.
        tokio::time::sleep(RETRY_BACKOFF).await;
    }
    true
}

/// Writes all records. If the database rejects a group, the records are written one by one, and only the rejected ones
/// are lost.
async fn append(repository: &dyn AuditRepository, unwritten: &mut Vec<AuditEntry>) -> Result<(), StoreError> {
    while !unwritten.is_empty() {
        let group = unwritten.len().min(MAX_GROUP);
        match repository.append(&unwritten[..group]).await {
            Ok(()) => drop(unwritten.drain(..group)),
            Err(StoreError::Broken { .. }) if group > 1 => one_by_one(repository, unwritten, group).await?,
            Err(StoreError::Broken { operation, source }) => {
                let lost = unwritten.remove(0);
                warn!(error = %source, record = %lost.id, path = lost.path, "lost an audit record that the database rejects");
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
    unwritten: &mut Vec<AuditEntry>,
    group: usize,
) -> Result<(), StoreError> {
    for _ in 0..group {
        match repository.append(&unwritten[..1]).await {
            Err(away @ StoreError::Unavailable { .. }) => return Err(away),
            Err(StoreError::Broken { source, .. }) => {
                warn!(error = %source, record = %unwritten[0].id, path = unwritten[0].path, "lost an audit record that the database rejects");
                counter!("casement_audit_records_lost_total").increment(1);
            }
            Ok(()) => {}
        }
        unwritten.remove(0);
    }
    Ok(())
}

/// Truncates to the precision of the database.
pub(super) fn to_microseconds(at: OffsetDateTime) -> OffsetDateTime {
    at.replace_nanosecond(at.microsecond() * 1000).unwrap_or(at)
}
