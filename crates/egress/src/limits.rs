//! The resource limits of one session's egress.

use std::time::Duration;

/// Limits of one session's egress.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Simultaneous connections from the sandbox; further ones wait in the socket's backlog.
    pub connections: usize,
    /// Simultaneous name lookups; an abandoned lookup counts until it really ends.
    pub lookups: usize,
    /// Addresses of one name that are considered.
    pub addresses: usize,
    /// Bytes of a request or response head; also the buffer of a connection.
    pub head_bytes: usize,
    /// Time for a head to arrive, and for a kept connection to wait for its next request.
    pub head_timeout: Duration,
    /// Time for one lookup.
    pub lookup_timeout: Duration,
    /// Time for one address to answer while there are others to try.
    pub attempt_timeout: Duration,
    /// Time for all addresses of a name.
    pub connect_timeout: Duration,
    /// Time for one step of a session's proxy: its TLS handshake, or a tunnel.
    pub proxy_timeout: Duration,
    /// Time without any byte after which a connection or tunnel is closed.
    pub idle_timeout: Duration,
    /// Buffer bytes for each direction of a tunnel.
    pub tunnel_buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Chromium keeps up to 256 idle connections to its proxy, at least one for each host and port, and 256 more
            // for WebSockets. With a lower limit the idle ones would block new ones.
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
