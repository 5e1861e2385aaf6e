//! How much one session may take.

use std::time::Duration;

/// Bounds on one session's way out.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections from inside at one time; further ones wait in the socket's queue.
    pub connections: usize,
    /// Names being looked up at one time; a lookup that was given up counts until it really ends.
    pub lookups: usize,
    /// Addresses of one name that are looked at.
    pub addresses: usize,
    /// Bytes of a request's or an answer's head; also the buffer of a connection.
    pub head_bytes: usize,
    /// Time for a head to arrive, and for a kept connection to wait for its next request.
    pub head_timeout: Duration,
    /// Time for one lookup.
    pub lookup_timeout: Duration,
    /// Time for one address to answer while there are others to try.
    pub attempt_timeout: Duration,
    /// Time for all addresses of a name.
    pub connect_timeout: Duration,
    /// Time for a session's proxy to take a step: its TLS, or a tunnel.
    pub proxy_timeout: Duration,
    /// A connection or tunnel on which no byte moves for so long is cut.
    pub idle_timeout: Duration,
    /// Bytes of buffer for each direction of a tunnel.
    pub tunnel_buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Chromium keeps as many as 256 idle connections to its proxy, one or more for each host and port that it has asked
            // for, and 256 for WebSockets beside them. With fewer places here those idle ones keep new ones waiting.
            connections: 512,
            lookups: 16,
            addresses: 16,
            head_bytes: 64 * 1024,
            head_timeout: Duration::from_secs(60),
            lookup_timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(20),
            proxy_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(15 * 60),
            tunnel_buffer: 32 * 1024,
        }
    }
}
