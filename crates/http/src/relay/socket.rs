//! Options of the clients' TCP connections, and how long a client may take nothing.
//!
//! A dead peer is found within ten seconds; that is the kernel's business ([`DEAD_AFTER`]). But the kernel also takes a
//! peer for dead that answers and whose window stays shut, and resets it without a word. So ours come first, in this
//! order: a client that takes something again after [`STALL`] is told that it was too slow; one that has taken nothing
//! when [`CUT_AFTER`] has passed is cut by us, and counted.
//!
//! What counts as taking is measured in steps of half of [`UNSENT`]: a client that reads steadily, at 8 KiB a second or
//! more, is never stalled.

use std::{any::Any, io, time::Duration};

use actix_web::{dev::Extensions, rt::net::TcpStream};
use rustix::net::sockopt;
use socket2::SockRef;

/// After this long without an answer from the peer's kernel a connection counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// How long a client may leave sent bytes lying without taking any of them.
pub(crate) const STALL: Duration = Duration::from_secs(8);
/// How long a connection on which nothing moves is kept. What lies between is for telling the client.
pub(crate) const CUT_AFTER: Duration = Duration::from_millis(9_500);
/// How many bytes may wait in the kernel that were not sent yet. A writer is woken when half of them have gone. Without
/// it the kernel would gather megabytes, and one step of a slow client would take longer than [`STALL`].
const UNSENT: u32 = 128 * 1024;
/// Quiet time before the first keep-alive probe, and between two of them.
const PROBE_AFTER: Duration = Duration::from_secs(4);
const PROBE_EVERY: Duration = Duration::from_secs(2);
const PROBES: u32 = 3;

/// For `HttpServer::on_connect`: finds dead peers within ten seconds, by keep-alive while nothing is under way and by
/// `TCP_USER_TIMEOUT` while something is.
pub fn on_connect(connection: &dyn Any, _: &mut Extensions) {
    let Some(stream) = connection.downcast_ref::<TcpStream>() else { return };
    if let Err(error) = tune(stream) {
        tracing::warn!(%error, "cannot set the options of a client's connection");
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX))?;
    SockRef::from(stream).set_tcp_notsent_lowat(UNSENT)
}
