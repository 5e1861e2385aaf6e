//! When each session of this node was last in use. Held in memory; the store is told every few seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::{Duration, OffsetDateTime};

use super::Session;
use crate::clock::Clock;
use crate::ids::SessionId;

#[derive(Clone, Copy, Debug)]
struct Entry {
    timeout: Duration,
    open: u32,
    viewers: u32,
    last: OffsetDateTime,
    stored: OffsetDateTime,
}

/// The idle clocks of this node's sessions.
#[derive(Clone)]
pub struct Activity {
    clock: Arc<dyn Clock>,
    entries: Arc<Mutex<HashMap<SessionId, Entry>>>,
}

impl Activity {
    /// No session yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, entries: Arc::default() }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<SessionId, Entry>> {
        // Every change is one assignment, so a panic elsewhere leaves no half-made entry.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to watch an active session; one that is watched already goes on as it is.
    pub fn watch(&self, session: &Session) {
        let timeout = Duration::seconds(i64::from(session.timeout_seconds));
        let last = session.last_active_at;
        self.entries().entry(session.id).or_insert(Entry { timeout, open: 0, viewers: 0, last, stored: last });
    }

    /// Stops watching.
    pub fn forget(&self, session: SessionId) {
        self.entries().remove(&session);
    }

    /// A connection is open, or an operation runs, until the guard is dropped. A session that is not watched is not
    /// on this node or has ended; then the guard does nothing.
    pub fn begin(&self, session: SessionId) -> ActivityGuard {
        self.start(session, false)
    }

    /// As [`begin`](Self::begin), for a live view.
    pub fn begin_view(&self, session: SessionId) -> ActivityGuard {
        self.start(session, true)
    }

    fn start(&self, session: SessionId, view: bool) -> ActivityGuard {
        let now = self.clock.now();
        let counted = self.entries().get_mut(&session).map(|entry| {
            entry.open += 1;
            entry.viewers += u32::from(view);
            entry.last = now;
            session
        });
        ActivityGuard { activity: self.clone(), counted, view }
    }

    /// Whether a live view of the session is open.
    #[must_use]
    pub fn is_watched(&self, session: SessionId) -> bool {
        self.entries().get(&session).is_some_and(|entry| entry.viewers > 0)
    }

    /// How many sessions are watched.
    #[must_use]
    pub fn sessions(&self) -> u32 {
        u32::try_from(self.entries().len()).unwrap_or(u32::MAX)
    }

    /// The sessions whose timeout has passed.
    #[must_use]
    pub fn idle(&self) -> Vec<SessionId> {
        let now = self.clock.now();
        let over = |entry: &Entry| entry.open == 0 && now - entry.last >= entry.timeout;
        self.entries().iter().filter(|(_, entry)| over(entry)).map(|(id, _)| *id).collect()
    }

    /// The sessions in use since the last call, and when they last were; for the store.
    #[must_use]
    pub fn news(&self) -> Vec<(SessionId, OffsetDateTime)> {
        let now = self.clock.now();
        let mut news = Vec::new();
        for (id, entry) in self.entries().iter_mut() {
            if entry.open > 0 {
                entry.last = now;
            }
            if entry.last > entry.stored {
                entry.stored = entry.last;
                news.push((*id, entry.last));
            }
        }
        news
    }
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
        let now = self.activity.clock.now();
        if let Some(entry) = self.activity.entries().get_mut(&session) {
            entry.open = entry.open.saturating_sub(1);
            entry.viewers = entry.viewers.saturating_sub(u32::from(self.view));
            entry.last = now;
        }
    }
}
