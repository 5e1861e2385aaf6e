//! When each session of this node was last in use. Held in memory; the store is told every few seconds.
//!
//! Counted by a clock that nobody can set. The store is told by the one that can be, and what it says is used only after a restart.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::{Duration, OffsetDateTime};

use super::Session;
use crate::clock::{Clock, MonotonicClock, MonotonicTime};
use crate::ids::SessionId;

/// How many sessions are remembered that were used before they were watched, which takes a moment after they are leased, and how many that
/// were taken back: a call may have found one before, and come to use it only now.
const EARLY: usize = 256;
const TAKEN_BACK: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Entry {
    timeout: Duration,
    used: Use,
    open: u32,
    viewers: u32,
    last: MonotonicTime,
    stored: MonotonicTime,
}

/// Whether anybody has used a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    NotYet,
    Used,
    /// Nobody has, and nobody may any more.
    TakenBack,
}

#[derive(Debug, Default)]
struct Sessions {
    watched: HashMap<SessionId, Entry>,
    early: VecDeque<SessionId>,
    taken_back: VecDeque<SessionId>,
    /// Sessions of logins that wait for a person.
    for_people: HashSet<SessionId>,
}

/// The idle clocks of this node's sessions.
#[derive(Clone)]
pub struct Activity {
    clock: Arc<dyn Clock>,
    monotonic: Arc<dyn MonotonicClock>,
    sessions: Arc<Mutex<Sessions>>,
}

impl Activity {
    /// No session yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, monotonic: Arc<dyn MonotonicClock>) -> Self {
        Self { clock, monotonic, sessions: Arc::default() }
    }

    fn all(&self) -> MutexGuard<'_, Sessions> {
        // Every change is one assignment, so a panic elsewhere leaves no half-made entry.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to watch an active session, whose timeout counts from now on; one that is watched already goes on as it is.
    pub fn watch(&self, session: &Session) {
        self.watch_since(session, self.monotonic.monotonic_now());
    }

    /// Begins to watch an active session of an earlier life of this node, which was last in use when the store says; not later than now.
    pub fn take_up(&self, session: &Session) {
        let idle = (self.clock.now() - session.last_active_at).max(Duration::ZERO);
        self.watch_since(session, self.monotonic.monotonic_now() - idle);
    }

    fn watch_since(&self, session: &Session, last: MonotonicTime) {
        let timeout = Duration::seconds(i64::from(session.timeout_seconds));
        let mut all = self.all();
        let used = if all.early.contains(&session.id) { Use::Used } else { Use::NotYet };
        let entry = Entry { timeout, used, open: 0, viewers: 0, last, stored: last };
        all.watched.entry(session.id).or_insert(entry);
    }

    /// Takes back an active session whose caller never got it, if nobody has found and used it meanwhile: from then on nobody
    /// can. Whether it was so.
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

    /// Stops watching. Nobody gets into what was taken back.
    pub fn forget(&self, session: SessionId) {
        let mut all = self.all();
        all.for_people.remove(&session);
        if all.watched.remove(&session).is_some_and(|entry| entry.used == Use::TakenBack) {
            remember(&mut all.taken_back, session, TAKEN_BACK);
        }
    }

    /// A connection is open, or an operation runs, until the guard is dropped. A session that is not watched is not
    /// on this node or has ended; then the guard does nothing. `None`: it is about to end, since its caller never got it.
    pub fn begin(&self, session: SessionId) -> Option<ActivityGuard> {
        self.start(session, false)
    }

    /// As [`begin`](Self::begin), for a live view.
    pub fn begin_view(&self, session: SessionId) -> Option<ActivityGuard> {
        self.start(session, true)
    }

    fn start(&self, session: SessionId, view: bool) -> Option<ActivityGuard> {
        let now = self.monotonic.monotonic_now();
        let mut guard = self.all();
        let all = &mut *guard;
        let counted = match all.watched.get_mut(&session) {
            Some(entry) if entry.used == Use::TakenBack => return None,
            Some(entry) => {
                entry.used = Use::Used;
                entry.open += 1;
                entry.viewers += u32::from(view);
                entry.last = now;
                Some(session)
            }
            None if all.taken_back.contains(&session) => return None,
            None => {
                remember(&mut all.early, session, EARLY);
                None
            }
        };
        drop(guard);
        Some(ActivityGuard { activity: self.clone(), counted, view })
    }

    /// Whether a live view of the session is open.
    #[must_use]
    pub fn is_watched(&self, session: SessionId) -> bool {
        self.all().watched.get(&session).is_some_and(|entry| entry.viewers > 0)
    }

    /// Whether the mouse and keyboard of people count in the live view of a login's session from now on: while it waits for a person, and
    /// not while it types.
    pub fn let_people_act(&self, session: SessionId, may: bool) {
        let mut all = self.all();
        if may {
            all.for_people.insert(session);
        } else {
            all.for_people.remove(&session);
        }
    }

    /// Whether what people do in the live view of the session counts.
    #[must_use]
    pub fn people_may_act(&self, session: &Session) -> bool {
        !session.for_login || self.all().for_people.contains(&session.id)
    }

    /// How many sessions are watched.
    #[must_use]
    pub fn sessions(&self) -> u32 {
        u32::try_from(self.all().watched.len()).unwrap_or(u32::MAX)
    }

    /// The sessions whose timeout has passed.
    #[must_use]
    pub fn idle(&self) -> Vec<SessionId> {
        let now = self.monotonic.monotonic_now();
        let over = |entry: &Entry| entry.open == 0 && now - entry.last >= entry.timeout;
        self.all().watched.iter().filter(|(_, entry)| over(entry)).map(|(id, _)| *id).collect()
    }

    /// The sessions in use since the last call, and when they last were; for the store.
    #[must_use]
    pub fn news(&self) -> Vec<(SessionId, OffsetDateTime)> {
        let (now, at) = (self.monotonic.monotonic_now(), self.clock.now());
        let mut news = Vec::new();
        for (id, entry) in &mut self.all().watched {
            if entry.open > 0 {
                entry.last = now;
            }
            if entry.last > entry.stored {
                entry.stored = entry.last;
                news.push((*id, at - (now - entry.last)));
            }
        }
        news
    }
}

fn remember(sessions: &mut VecDeque<SessionId>, session: SessionId, most: usize) {
    if sessions.len() == most {
        sessions.pop_front();
    }
    sessions.push_back(session);
}

/// Something is going on in a session for as long as this lives.
#[must_use]
pub struct ActivityGuard {
    activity: Activity,
    /// `None` if the session was not watched: then nothing was counted that had to be taken back.
    counted: Option<SessionId>,
    view: bool,
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let Some(session) = self.counted else { return };
        let now = self.activity.monotonic.monotonic_now();
        if let Some(entry) = self.activity.all().watched.get_mut(&session) {
            entry.open = entry.open.saturating_sub(1);
            entry.viewers = entry.viewers.saturating_sub(u32::from(self.view));
            entry.last = now;
        }
    }
}
