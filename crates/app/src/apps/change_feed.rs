//! Wakes waiters when deployments and invocations change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::deployment::{ChangeNotifier, ChangeWaiter, Subject, WakeReason};
use casement_postgres::{NotificationEvent, Notifications};
use parking_lot::{Mutex, MutexGuard};
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::system::System;

/// The maximum interval between two checks of a waiter, in case a notification was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Wakers of the background jobs.
#[derive(Default)]
pub(crate) struct AppWakers {
    /// Notified when a build may be queued.
    pub(crate) builds: Notify,
    /// Notified when a call may be queued.
    pub(crate) runs: Notify,
    /// Notified when the set of deployments with ready processes may have changed.
    pub(crate) ready: Notify,
}

/// The waiters of this node. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct ChangeFeed {
    subjects: Arc<Mutex<HashMap<Subject, Subscribers>>>,
    stopping: CancellationToken,
}

/// The waiters of one subject.
#[derive(Default)]
struct Subscribers {
    count: watch::Sender<u64>,
    /// The number of waiters.
    waiters: usize,
}

impl ChangeFeed {
    fn subjects(&self) -> MutexGuard<'_, HashMap<Subject, Subscribers>> {
        self.subjects.lock()
    }

    fn notify(&self, subject: Subject) {
        if let Some(subscribers) = self.subjects().get(&subject) {
            subscribers.count.send_modify(|count| *count += 1);
        }
    }

    fn notify_all(&self) {
        self.subjects().values().for_each(|subscribers| subscribers.count.send_modify(|count| *count += 1));
    }

    /// Ends every wait, because the server stops.
    pub(crate) fn close(&self) {
        self.stopping.cancel();
    }
}

impl ChangeNotifier for ChangeFeed {
    fn expect(&self, subject: Subject) -> Box<dyn ChangeWaiter> {
        let mut subjects = self.subjects();
        let subscribers = subjects.entry(subject).or_default();
        subscribers.waiters += 1;
        let changes = subscribers.count.subscribe();
        drop(subjects);
        Box::new(SubjectWaiter { feed: self.clone(), subject, changes })
    }
}

struct SubjectWaiter {
    feed: ChangeFeed,
    subject: Subject,
    changes: watch::Receiver<u64>,
}

#[async_trait]
impl ChangeWaiter for SubjectWaiter {
    async fn next(&mut self, until: Option<OffsetDateTime>) -> WakeReason {
        let left = until.map(|until| Duration::try_from(until - System.now()).unwrap_or(Duration::ZERO));
        let nap = left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL));
        tokio::select! {
            biased;
            () = self.feed.stopping.cancelled() => WakeReason::Closed,
            // Never fails: the sender is removed only after the last waiter.
            _ = self.changes.changed() => WakeReason::Changed,
            () = tokio::time::sleep(nap) => if left == Some(nap) { WakeReason::TimeUp } else { WakeReason::Changed },
        }
    }
}

impl Drop for SubjectWaiter {
    fn drop(&mut self) {
        let mut subjects = self.feed.subjects();
        let Some(subscribers) = subjects.get_mut(&self.subject) else { return };
        subscribers.waiters -= 1;
        if subscribers.waiters == 0 {
            subjects.remove(&self.subject);
        }
    }
}

/// Passes the notifications of all nodes about deployments and invocations to waiters and wakers.
pub(crate) async fn listen(mut notifications: Notifications, feed: ChangeFeed, wakers: Arc<AppWakers>) {
    loop {
        match notifications.next().await {
            NotificationEvent::Notification { payload, .. } => match AppNotification::parse(&payload) {
                Some(AppNotification { subject, is_new }) => {
                    feed.notify(subject);
                    match (subject, is_new) {
                        (Subject::Deployment(_), true) => wakers.builds.notify_one(),
                        (Subject::Invocation(_), true) => wakers.runs.notify_one(),
                        (Subject::Deployment(_), false) => wakers.ready.notify_one(),
                        (Subject::Invocation(_), false) => {}
                    }
                }
                None => warn!("ignored an invalid notification"),
            },
            NotificationEvent::Listening => {
                feed.notify_all();
                wakers.builds.notify_one();
                wakers.runs.notify_one();
                wakers.ready.notify_one();
            }
        }
    }
}

/// The payload of a notification.
#[derive(Debug, PartialEq, Eq)]
struct AppNotification {
    subject: Subject,
    is_new: bool,
}

impl AppNotification {
    fn parse(text: &str) -> Option<Self> {
        let (is_new, text) = text.strip_prefix('+').map_or((false, text), |text| (true, text));
        let (kind, id) = text.split_once(':')?;
        let subject = match kind {
            "d" => Subject::Deployment(id.parse().ok()?),
            "i" => Subject::Invocation(id.parse().ok()?),
            _ => return None,
        };
        Some(Self { subject, is_new })
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::InvocationId;
    use ulid::Ulid;

    use super::*;

    fn subject(n: u128) -> Subject {
        Subject::Invocation(InvocationId::from_ulid(Ulid(n)))
    }

    #[tokio::test]
    async fn changes_reach_the_waiters_of_their_subject_only() {
        let feed = ChangeFeed::default();
        let (mut one, mut two) = (feed.expect(subject(1)), feed.expect(subject(2)));
        feed.notify(subject(1));
        assert_eq!(one.next(None).await, WakeReason::Changed);
        assert_eq!(two.next(Some(OffsetDateTime::UNIX_EPOCH)).await, WakeReason::TimeUp);
        feed.close();
        assert_eq!(two.next(None).await, WakeReason::Closed);
        drop((one, two));
        assert!(feed.subjects().is_empty(), "no subject is left");
    }

    #[test]
    fn a_notification_names_its_subject() {
        let id = "01k9zk0000000000000000000a";
        let parsed = AppNotification::parse(&format!("+i:{id}")).expect("a word");
        assert_eq!(parsed, AppNotification { subject: Subject::Invocation(id.parse().expect("an id")), is_new: true });
        assert!(!AppNotification::parse(&format!("d:{id}")).expect("a word").is_new);
        for text in ["", "d", "x:01k9zk0000000000000000000a", "d:x"] {
            assert_eq!(AppNotification::parse(text), None, "{text}");
        }
    }
}
