//! The traffic counters of one session's egress.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters since the session's egress was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// The number of requests, including tunnels.
    pub requests: u64,
    /// The number of requests that the rules refused.
    pub refused: u64,
    /// The number of bytes that the session sent, including heads.
    pub bytes_from_session: u64,
    /// The number of bytes that the session received, including heads.
    pub bytes_to_session: u64,
    /// The number of open connections.
    pub connections: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) from_session: AtomicU64,
    pub(crate) to_session: AtomicU64,
    connections: AtomicU64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            requests: self.requests.load(Relaxed),
            refused: self.refused.load(Relaxed),
            bytes_from_session: self.from_session.load(Relaxed),
            bytes_to_session: self.to_session.load(Relaxed),
            connections: self.connections.load(Relaxed),
        }
    }

    /// Counts a connection as open until the guard is dropped.
    pub(crate) fn open_connection(&self) -> impl Drop + '_ {
        self.connections.fetch_add(1, Relaxed);
        Open(self)
    }
}

struct Open<'a>(&'a Counters);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
