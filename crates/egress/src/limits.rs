//! The resource limits of one session's egress.

use std::time::Duration;

/// Limits of one session's egress.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The maximum number of simultaneous connections from the sandbox; further ones wait in the socket's backlog.
    pub connections: usize,
    /// The maximum number of simultaneous name lookups; an abandoned lookup counts until it ends.
    pub lookups: usize,
    /// The maximum number of addresses of one name that are used.
    pub addresses: usize,
    /// The longest head of a request or response, in bytes; also the size of a connection's buffer.
    pub head_bytes: usize,
    /// The timeout for a head to arrive, and for the next request on an open connection.
    pub head_timeout: Duration,
    /// The timeout of one lookup.
    pub lookup_timeout: Duration,
    /// The time after which the next address of a name is tried, beside those that have not answered (RFC 8305).
    pub attempt_delay: Duration,
    /// The timeout of all addresses of a name together.
    pub connect_timeout: Duration,
    /// The timeout of one step of a session's proxy: its TLS handshake, or opening a tunnel.
    pub proxy_timeout: Duration,
    /// The time without any byte after which a connection or tunnel is closed.
    pub idle_timeout: Duration,
    /// The size of the buffer for each direction of a tunnel, in bytes.
    pub tunnel_buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Chromium holds up to 512 connections to its proxy, at least one for each host and port, and 256 more for
            // WebSockets: twice its own limits, which it varies. With a lower limit idle connections would block new ones.
            connections: 768,
            lookups: 16,
            addresses: 16,
            head_bytes: 64 * 1024,
            head_timeout: Duration::from_secs(60),
            lookup_timeout: Duration::from_secs(10),
            attempt_delay: casement_dial::ATTEMPT_DELAY,
            connect_timeout: Duration::from_secs(20),
            proxy_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(15 * 60),
            tunnel_buffer: 32 * 1024,
        }
    }
}
