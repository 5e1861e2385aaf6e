//! TCP options of client connections, and the timeouts for clients that do not read.
//!
//! The kernel detects a dead peer within ten seconds ([`DEAD_PEER_TIMEOUT`]). It also resets the connection of a peer
//! that responds but keeps its window closed, without a close frame. So the server's own timeouts are shorter, in this
//! order: a client that reads again after [`STALL_TIMEOUT`] is closed as a slow reader; a client that has read no data
//! for [`STUCK_TIMEOUT`] is disconnected and counted.
//!
//! Progress is measured in steps of half of [`UNSENT_BYTES`]: a client that reads 8 KiB per second or more never
//! stalls.

use std::{io, time::Duration};

use rustix::net::sockopt;
use socket2::SockRef;
use tokio::net::TcpStream;

/// The time without a response of the peer's kernel after which a connection counts as dead.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time for which a client may read none of the sent bytes.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(8);
/// The time without progress after which a connection is closed. It leaves time for a close frame to the client.
pub(crate) const STUCK_TIMEOUT: Duration = Duration::from_millis(9_500);
/// The maximum number of unsent bytes in the kernel. A writer is woken when half of them were sent. Without this limit
/// the kernel would buffer megabytes, and one step of a slow client would take longer than [`STALL_TIMEOUT`].
const UNSENT_BYTES: u32 = 128 * 1024;
/// The idle time before the first keep-alive probe, and the interval between two of them.
const PROBE_DELAY: Duration = Duration::from_secs(4);
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const MAX_PROBES: u32 = 3;

/// Sets the options of a client's connection. Dead peers are detected within ten seconds, by keep-alive while the
/// connection is idle and by `TCP_USER_TIMEOUT` while data is in flight.
pub fn prepare_connection(stream: &TcpStream) {
    if let Err(error) = set_options(stream) {
        tracing::warn!(%error, "cannot set the options of a client's connection");
    }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_DELAY)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, MAX_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(DEAD_PEER_TIMEOUT.as_millis()).unwrap_or(u32::MAX))?;
    SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES)
}
