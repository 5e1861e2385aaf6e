//! The registry of open connections by session, through which the end of a session reaches each of them.

use std::{collections::HashMap, sync::Arc};

use casement_domain::{
    SessionId,
    session::{Connections, EndReason, Session},
};
use parking_lot::Mutex;

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

/// The header of the response with the id of the session that a connection has made.
pub(crate) const SESSION_HEADER: &str = "x-casement-session-id";

/// The open connections of this server. Clones share one registry.
#[derive(Clone, Default)]
pub struct ConnectionRegistry(Arc<Mutex<Inner>>);

/// The registration of an open connection. Dropping it ends the registration.
#[must_use]
pub struct Registration {
    registry: ConnectionRegistry,
    session: SessionId,
}

impl ConnectionRegistry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a connection. The caller registers first and then checks whether the session is still active, so that
    /// an end in between is seen either in the store or through the signal.
    pub fn register(&self, session: SessionId) -> (EndSignal, Registration) {
        let mut inner = self.0.lock();
        let draining = inner.draining;
        let entry = inner.open.entry(session).or_insert_with(|| Entry { end: end_signal().0, connections: 0 });
        entry.connections += 1;
        if draining {
            entry.end.end(CloseReason::Drain);
        }
        (entry.end.signal(), Registration { registry: self.clone(), session })
    }

    /// Closes every open and later connection, because the server stops. Sessions continue.
    pub fn drain(&self) {
        let mut inner = self.0.lock();
        inner.draining = true;
        for entry in inner.open.values() {
            entry.end.end(CloseReason::Drain);
        }
    }

    /// Returns the number of open connections of a session.
    #[must_use]
    pub fn count(&self, session: SessionId) -> usize {
        self.0.lock().open.get(&session).map_or(0, |entry| entry.connections)
    }

    /// Returns the number of open connections of all sessions.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.lock().open.values().map(|entry| entry.connections).sum()
    }
}

impl Connections for ConnectionRegistry {
    fn close(&self, session: SessionId, reason: EndReason) {
        if let Some(entry) = self.0.lock().open.get(&session) {
            entry.end.end(close_reason(reason));
        }
    }

    fn ended(&self, _: &Session, _: EndReason) {}

    fn restarted(&self, session: SessionId) {
        let mut inner = self.0.lock();
        let draining = inner.draining;
        if let Some(entry) = inner.open.get_mut(&session) {
            let next_end = end_signal().0;
            if draining {
                next_end.end(CloseReason::Drain);
            }
            // Later connections get a new signal.
            std::mem::replace(&mut entry.end, next_end).end(CloseReason::BrowserRestarted);
        }
    }
}

/// Maps the end of a session to the reason that its connections are closed with. An undelivered session has no peers,
/// so any reason is safe.
fn close_reason(reason: EndReason) -> CloseReason {
    match reason {
        EndReason::Deleted | EndReason::Undelivered => CloseReason::Deleted,
        EndReason::IdleTimeout => CloseReason::IdleTimeout,
        EndReason::Crashed | EndReason::NodeLost | EndReason::StartFailed => CloseReason::Crashed,
        EndReason::Released => CloseReason::Released,
        EndReason::Oom => CloseReason::Oom,
        EndReason::BrowserClosed => CloseReason::BrowserClosed,
        EndReason::BrowserHung => CloseReason::BrowserHung,
        EndReason::NodeDrained => CloseReason::NodeDrained,
        EndReason::EngineLost => CloseReason::EngineLost,
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut inner = self.registry.0.lock();
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
    fn a_restart_ends_earlier_connections_and_admits_new_ones() {
        let registry = ConnectionRegistry::new();
        let (before, registration) = registry.register(session_id(1));
        registry.restarted(session_id(1));
        let (after, _after) = registry.register(session_id(1));
        assert_eq!(before.ended().now_or_never(), Some(CloseReason::BrowserRestarted));
        assert_eq!(after.clone().ended().now_or_never(), None);
        drop(registration);
        assert_eq!(registry.total(), 1);
        registry.close(session_id(1), EndReason::Deleted);
        assert_eq!(after.ended().now_or_never(), Some(CloseReason::Deleted));
    }

    #[test]
    fn draining_ends_present_and_later_connections() {
        let registry = ConnectionRegistry::new();
        let (now, _now) = registry.register(session_id(1));
        registry.drain();
        let (later, later_open) = registry.register(session_id(2));
        assert_eq!(now.ended().now_or_never(), Some(CloseReason::Drain));
        assert_eq!(later.ended().now_or_never(), Some(CloseReason::Drain));
        assert_eq!(registry.total(), 2);
        drop(later_open);
        assert_eq!(registry.total(), 1);
    }
}
