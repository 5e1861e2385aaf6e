//! The activity of this node's sessions: their times of last use, in memory. The store is updated every few seconds.
//!
//! Idle timeouts use the monotonic clock. The store receives wall clock times, which are used only after a restart.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use time::{Duration, OffsetDateTime};

use super::Session;
use crate::clock::{Clock, MonotonicClock, MonotonicTime};
use crate::ids::SessionId;

/// The maximum number of remembered sessions that were used before they were watched, shortly after their lease.
const MAX_EARLY_SESSIONS: usize = 256;
/// The maximum number of remembered sessions that were taken back, which a late call may still try to use.
const MAX_TAKEN_BACK_SESSIONS: usize = 4096;

#[derive(Clone, Debug)]
struct Entry {
    /// The session as it was last read.
    session: Box<Session>,
    timeout: Duration,
    used: Use,
    open: u32,
    viewers: u32,
    last: MonotonicTime,
    stored: MonotonicTime,
}

/// Whether a session has been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    NotYet,
    Used,
    /// The session was not used, and use is refused from now on.
    TakenBack,
}

#[derive(Debug, Default)]
struct Sessions {
    watched: HashMap<SessionId, Entry>,
    early: VecDeque<SessionId>,
    taken_back: VecDeque<SessionId>,
    /// Login sessions that wait for a person.
    for_people: HashSet<SessionId>,
}

/// The idle timeouts of this node's sessions.
#[derive(Clone)]
pub struct Activity {
    clock: Arc<dyn Clock>,
    monotonic: Arc<dyn MonotonicClock>,
    sessions: Arc<Mutex<Sessions>>,
}

impl Activity {
    /// Creates an empty registry.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, monotonic: Arc<dyn MonotonicClock>) -> Self {
        Self { clock, monotonic, sessions: Arc::default() }
    }

    fn all(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock()
    }

    /// Begins to watch an active session; its idle timeout counts from now. A watched session is unchanged.
    pub fn watch(&self, session: &Session) {
        self.watch_since(session, self.monotonic.monotonic_now());
    }

    /// Begins to watch an active session from before the restart of this node. Its idle timeout counts from the stored
    /// time of its last use, or from now if that is in the future.
    pub fn take_up(&self, session: &Session) {
        let idle = (self.clock.now() - session.last_active_at).max(Duration::ZERO);
        self.watch_since(session, self.monotonic.monotonic_now() - idle);
    }

    fn watch_since(&self, session: &Session, last: MonotonicTime) {
        let timeout = Duration::seconds(i64::from(session.timeout_seconds));
        let mut all = self.all();
        let used = if all.early.contains(&session.id) { Use::Used } else { Use::NotYet };
        let entry =
            Entry { session: Box::new(session.clone()), timeout, used, open: 0, viewers: 0, last, stored: last };
        all.watched.entry(session.id).or_insert(entry);
    }

    /// Notes what was just read of a watched session.
    pub(crate) fn note(&self, session: &Session) {
        if let Some(entry) = self.all().watched.get_mut(&session.id) {
            *entry.session = session.clone();
        }
    }

    /// Returns a watched session as it was last read: it is active, unless another node has ended it since.
    pub(crate) fn last_read(&self, session: SessionId) -> Option<Session> {
        let all = self.all();
        let entry = all.watched.get(&session).filter(|entry| entry.used != Use::TakenBack)?;
        Some((*entry.session).clone())
    }

    /// Shortens the idle timeout of a watched session to `timeout`, as long as this node runs. After a restart its
    /// stored timeout counts again.
    pub fn shorten_timeout(&self, session: SessionId, timeout: Duration) {
        if let Some(entry) = self.all().watched.get_mut(&session) {
            entry.timeout = entry.timeout.min(timeout);
        }
    }

    /// Takes back an undelivered session if it was not used, and refuses use from then on. Returns whether it did.
    #[must_use]
    pub fn take_back(&self, session: &Session) -> bool {
        self.watch(session);
        let mut all = self.all();
        let Some(entry) = all.watched.get_mut(&session.id) else { return false };
        if entry.used != Use::Used {
            entry.used = Use::TakenBack;
        }
        entry.used == Use::TakenBack
    }

    /// Stops watching a session. If it was taken back, use stays refused. Returns it as it was last read, if it was
    /// watched: of several calls, one gets it.
    pub fn forget(&self, session: SessionId) -> Option<Session> {
        let mut all = self.all();
        all.for_people.remove(&session);
        let forgotten = all.watched.remove(&session)?;
        if forgotten.used == Use::TakenBack {
            remember(&mut all.taken_back, session, MAX_TAKEN_BACK_SESSIONS);
        }
        Some(*forgotten.session)
    }

    /// Marks the session as in use until the guard is dropped. If the session is not watched, because it runs on
    /// another node or has ended, the guard does nothing. Returns `None` if the session was taken back.
    pub fn begin(&self, session: SessionId) -> Option<ActivityGuard> {
        self.start(session, Opened { view: false, counts: true })
    }

    /// Like [`begin`](Self::begin), for a live view. One that may only watch does not count as use.
    pub fn begin_view(&self, session: SessionId, may_act: bool) -> Option<ActivityGuard> {
        self.start(session, Opened { view: true, counts: may_act })
    }

    fn start(&self, session: SessionId, opened: Opened) -> Option<ActivityGuard> {
        let now = self.monotonic.monotonic_now();
        let mut guard = self.all();
        let all = &mut *guard;
        let counted = match all.watched.get_mut(&session) {
            Some(entry) if entry.used == Use::TakenBack => return None,
            Some(entry) => {
                entry.viewers += u32::from(opened.view);
                if opened.counts {
                    entry.used = Use::Used;
                    entry.open += 1;
                    entry.last = now;
                }
                Some(session)
            }
            None if all.taken_back.contains(&session) => return None,
            None if !opened.counts => None,
            None => {
                remember(&mut all.early, session, MAX_EARLY_SESSIONS);
                None
            }
        };
        drop(guard);
        Some(ActivityGuard { activity: self.clone(), counted, opened })
    }

    /// Returns whether a live view of the session is open.
    #[must_use]
    pub fn is_watched(&self, session: SessionId) -> bool {
        self.all().watched.get(&session).is_some_and(|entry| entry.viewers > 0)
    }

    /// Sets whether input of people in the live view of a login's session is accepted: while the login waits for a
    /// person, and not while it types.
    pub fn let_people_act(&self, session: SessionId, may: bool) {
        let mut all = self.all();
        if may {
            all.for_people.insert(session);
        } else {
            all.for_people.remove(&session);
        }
    }

    /// Returns whether input of people in the live view of the session is accepted.
    #[must_use]
    pub fn people_may_act(&self, session: &Session) -> bool {
        !session.for_login || self.all().for_people.contains(&session.id)
    }

    /// Returns the number of watched sessions.
    #[must_use]
    pub fn sessions(&self) -> u32 {
        u32::try_from(self.all().watched.len()).unwrap_or(u32::MAX)
    }

    /// Returns the watched sessions.
    #[must_use]
    pub fn watched(&self) -> Vec<SessionId> {
        self.all().watched.keys().copied().collect()
    }

    /// Returns the sessions whose idle timeout has passed.
    #[must_use]
    pub fn idle(&self) -> Vec<SessionId> {
        let now = self.monotonic.monotonic_now();
        let over = |entry: &Entry| entry.open == 0 && now - entry.last >= entry.timeout;
        self.all().watched.iter().filter(|(_, entry)| over(entry)).map(|(id, _)| *id).collect()
    }

    /// Returns the sessions that were used since the last call, with the times of their last use, for the store.
    #[must_use]
    pub fn take_changes(&self) -> Vec<(SessionId, OffsetDateTime)> {
        let (now, at) = (self.monotonic.monotonic_now(), self.clock.now());
        let mut changes = Vec::new();
        for (id, entry) in &mut self.all().watched {
            if entry.open > 0 {
                entry.last = now;
            }
            if entry.last > entry.stored {
                entry.stored = entry.last;
                changes.push((*id, at - (now - entry.last)));
            }
        }
        changes
    }
}

fn remember(sessions: &mut VecDeque<SessionId>, session: SessionId, max: usize) {
    if sessions.len() == max {
        sessions.pop_front();
    }
    sessions.push_back(session);
}

/// Marks a session as in use until it is dropped.
#[must_use]
pub struct ActivityGuard {
    activity: Activity,
    /// The watched session; `None` if the session was not watched, so that nothing was counted.
    counted: Option<SessionId>,
    opened: Opened,
}

/// What holds a guard.
#[derive(Clone, Copy)]
struct Opened {
    /// Whether it is a live view.
    view: bool,
    /// Whether it counts as use.
    counts: bool,
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let Some(session) = self.counted else { return };
        let now = self.activity.monotonic.monotonic_now();
        if let Some(entry) = self.activity.all().watched.get_mut(&session) {
            entry.viewers = entry.viewers.saturating_sub(u32::from(self.opened.view));
            if self.opened.counts {
                entry.open = entry.open.saturating_sub(1);
                entry.last = now;
            }
        }
    }
}
