//! Which connections are open into which session, so that the end of a session reaches each of them.

use std::{collections::HashMap, sync::Arc};

use casement_domain::{
    SessionId,
    session::{Connections, EndReason},
};
use parking_lot::{Mutex, MutexGuard};

use crate::relay::{CloseReason, EndSender, EndSignal, end_signal};

#[derive(Default)]
struct Inner {
    open: HashMap<SessionId, Entry>,
    draining: bool,
}

struct Entry {
    end: EndSender,
    connections: usize,
}

/// The open connections of this server; clones are the same registry.
#[derive(Clone, Default)]
pub struct ConnectionRegistry(Arc<Mutex<Inner>>);

/// A connection is open until this is dropped.
#[must_use]
pub struct Registered {
    registry: ConnectionRegistry,
    session: SessionId,
}

impl ConnectionRegistry {
    /// No connection yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Notes a connection. Whoever opens one registers first and then looks whether the session is still active: an
    /// end that came in between is either seen in the store or told by the signal.
    pub fn register(&self, session: SessionId) -> (EndSignal, Registered) {
        let mut inner = self.inner();
        let draining = inner.draining;
        let entry = inner.open.entry(session).or_insert_with(|| Entry { end: end_signal().0, connections: 0 });
        entry.connections += 1;
        if draining {
            entry.end.end(CloseReason::Drain);
        }
        (entry.end.signal(), Registered { registry: self.clone(), session })
    }

    /// The server goes away: ends every connection, now and later; the sessions go on.
    pub fn drain(&self) {
        let mut inner = self.inner();
        inner.draining = true;
        for entry in inner.open.values() {
            entry.end.end(CloseReason::Drain);
        }
    }

    /// How many connections are open into a session.
    #[must_use]
    pub fn of(&self, session: SessionId) -> usize {
        self.inner().open.get(&session).map_or(0, |entry| entry.connections)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.inner().open.values().map(|entry| entry.connections).sum()
    }
}

impl Connections for ConnectionRegistry {
    fn close(&self, session: SessionId, reason: EndReason) {
        if let Some(entry) = self.inner().open.get(&session) {
            entry.end.end(close_reason(reason));
        }
    }

    fn restarted(&self, session: SessionId) {
        let mut inner = self.inner();
        let draining = inner.draining;
        if let Some(entry) = inner.open.get_mut(&session) {
            let after = end_signal().0;
            if draining {
                after.end(CloseReason::Drain);
            }
            // Those who come from now on wait for another end.
            std::mem::replace(&mut entry.end, after).end(CloseReason::BrowserRestarted);
        }
    }
}

/// What the peer of a connection is told. A session that no caller ever had has no peers; deleted is the safe word.
fn close_reason(reason: EndReason) -> CloseReason {
    match reason {
        EndReason::Deleted | EndReason::Undelivered => CloseReason::Deleted,
        EndReason::IdleTimeout => CloseReason::IdleTimeout,
        EndReason::Crashed | EndReason::NodeLost | EndReason::StartFailed => CloseReason::Crashed,
        EndReason::Released => CloseReason::Released,
        EndReason::Oom => CloseReason::Oom,
        EndReason::BrowserClosed => CloseReason::BrowserClosed,
        EndReason::BrowserHung => CloseReason::BrowserHung,
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut inner = self.registry.inner();
        let Some(entry) = inner.open.get_mut(&self.session) else { return };
        entry.connections -= 1;
        if entry.connections == 0 {
            inner.open.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::session_id;
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn the_end_of_a_session_reaches_its_connections_and_no_others() {
        let registry = ConnectionRegistry::new();
        let (ours, _ours) = registry.register(session_id(1));
        let (others, _others) = registry.register(session_id(2));
        registry.close(session_id(1), EndReason::Released);
        assert_eq!(ours.ended().now_or_never(), Some(CloseReason::Released));
        assert_eq!(others.ended().now_or_never(), None);
    }

    #[test]
    fn a_restart_ends_the_connections_of_before_and_lets_new_ones_in() {
        let registry = ConnectionRegistry::new();
        let (before, kept) = registry.register(session_id(1));
        registry.restarted(session_id(1));
        let (after, _after) = registry.register(session_id(1));
        assert_eq!(before.ended().now_or_never(), Some(CloseReason::BrowserRestarted));
        assert_eq!(after.clone().ended().now_or_never(), None);
        drop(kept);
        assert_eq!(registry.open(), 1);
        registry.close(session_id(1), EndReason::Deleted);
        assert_eq!(after.ended().now_or_never(), Some(CloseReason::Deleted));
    }

    #[test]
    fn draining_ends_the_connections_of_now_and_later() {
        let registry = ConnectionRegistry::new();
        let (now, _now) = registry.register(session_id(1));
        registry.drain();
        let (later, later_open) = registry.register(session_id(2));
        assert_eq!(now.ended().now_or_never(), Some(CloseReason::Drain));
        assert_eq!(later.ended().now_or_never(), Some(CloseReason::Drain));
        assert_eq!(registry.open(), 2);
        drop(later_open);
        assert_eq!(registry.open(), 1);
    }
}
