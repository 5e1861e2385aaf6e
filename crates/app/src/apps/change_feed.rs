//! Wakes those who wait for news of deployments and invocations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::deployment::{ChangeNotifier, ChangeWaiter, Subject, WakeReason};
use casement_postgres::{NotificationEvent, Notifications};
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::system::System;

/// After so long it is looked again, whatever was or was not heard.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// What was said about work, for those who do it.
#[derive(Default)]
pub(crate) struct AppWakers {
    /// A build may wait.
    pub(crate) builds: Notify,
    /// A call may wait.
    pub(crate) runs: Notify,
    /// What is held ready may have changed.
    pub(crate) ready: Notify,
}

/// Who waits on this node; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct ChangeFeed {
    ears: Arc<Mutex<HashMap<Subject, Listened>>>,
    stopping: CancellationToken,
}

/// What somebody waits for news of.
#[derive(Default)]
struct Listened {
    count: watch::Sender<u64>,
    /// How many wait.
    by: usize,
}

impl ChangeFeed {
    fn ears(&self) -> MutexGuard<'_, HashMap<Subject, Listened>> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, subject: Subject) {
        if let Some(listened) = self.ears().get(&subject) {
            listened.count.send_modify(|count| *count += 1);
        }
    }

    fn tell_all(&self) {
        self.ears().values().for_each(|listened| listened.count.send_modify(|count| *count += 1));
    }

    /// The server stops: every wait is over.
    pub(crate) fn close(&self) {
        self.stopping.cancel();
    }
}

impl ChangeNotifier for ChangeFeed {
    fn expect(&self, subject: Subject) -> Box<dyn ChangeWaiter> {
        let mut ears = self.ears();
        let listened = ears.entry(subject).or_default();
        listened.by += 1;
        let heard = listened.count.subscribe();
        drop(ears);
        Box::new(Ear { room: self.clone(), subject, heard })
    }
}

struct Ear {
    room: ChangeFeed,
    subject: Subject,
    heard: watch::Receiver<u64>,
}

#[async_trait]
impl ChangeWaiter for Ear {
    async fn next(&mut self, until: Option<OffsetDateTime>) -> WakeReason {
        let left = until.map(|until| Duration::try_from(until - System.now()).unwrap_or(Duration::ZERO));
        let nap = left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL));
        tokio::select! {
            biased;
            () = self.room.stopping.cancelled() => WakeReason::Closed,
            // Its sender lives as long as somebody listens.
            _ = self.heard.changed() => WakeReason::Changed,
            () = tokio::time::sleep(nap) => if left == Some(nap) { WakeReason::TimeUp } else { WakeReason::Changed },
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut ears = self.room.ears();
        let Some(listened) = ears.get_mut(&self.subject) else { return };
        listened.by -= 1;
        if listened.by == 0 {
            ears.remove(&self.subject);
        }
    }
}

/// Hears what every node says about deployments and invocations.
pub(crate) async fn hear(mut notifications: Notifications, room: ChangeFeed, wakers: Arc<AppWakers>) {
    loop {
        match notifications.next().await {
            NotificationEvent::Notification { payload, .. } => match AppNotification::parse(&payload) {
                Some(AppNotification { subject, is_new }) => {
                    room.tell(subject);
                    match (subject, is_new) {
                        (Subject::Deployment(_), true) => wakers.builds.notify_one(),
                        (Subject::Invocation(_), true) => wakers.runs.notify_one(),
                        (Subject::Deployment(_), false) => wakers.ready.notify_one(),
                        (Subject::Invocation(_), false) => {}
                    }
                }
                None => warn!("heard something that is no news"),
            },
            NotificationEvent::Listening => {
                room.tell_all();
                wakers.builds.notify_one();
                wakers.runs.notify_one();
                wakers.ready.notify_one();
            }
        }
    }
}

/// What is said on the channel.
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
    async fn news_reach_those_who_wait_for_them_and_nobody_else() {
        let room = ChangeFeed::default();
        let (mut one, mut two) = (room.expect(subject(1)), room.expect(subject(2)));
        room.tell(subject(1));
        assert_eq!(one.next(None).await, WakeReason::Changed);
        assert_eq!(two.next(Some(OffsetDateTime::UNIX_EPOCH)).await, WakeReason::TimeUp);
        room.close();
        assert_eq!(two.next(None).await, WakeReason::Closed);
        drop((one, two));
        assert!(room.ears().is_empty(), "nobody is left in the room");
    }

    #[test]
    fn a_word_names_what_there_is_news_of() {
        let id = "01k9zk0000000000000000000a";
        let parsed = AppNotification::parse(&format!("+i:{id}")).expect("a word");
        assert_eq!(parsed, AppNotification { subject: Subject::Invocation(id.parse().expect("an id")), is_new: true });
        assert!(!AppNotification::parse(&format!("d:{id}")).expect("a word").is_new);
        for text in ["", "d", "x:01k9zk0000000000000000000a", "d:x"] {
            assert_eq!(AppNotification::parse(text), None, "{text}");
        }
    }
}
