//! Options of the clients' TCP connections.

use std::{any::Any, time::Duration};

use actix_web::{dev::Extensions, rt::net::TcpStream};
use rustix::net::sockopt;

/// After this long without an answer from the peer's kernel a connection counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// Quiet time before the first keep-alive probe, and between two of them.
const PROBE_AFTER: Duration = Duration::from_secs(4);
const PROBE_EVERY: Duration = Duration::from_secs(2);
const PROBES: u32 = 3;

/// For `HttpServer::on_connect`: finds dead peers within ten seconds, by keep-alive while nothing is under way and by
/// `TCP_USER_TIMEOUT` while something is. Linux also counts a peer whose window stays shut for that long as dead, so
/// a client that stops reading altogether is cut by the kernel after the same time.
pub fn on_connect(connection: &dyn Any, _: &mut Extensions) {
    let Some(stream) = connection.downcast_ref::<TcpStream>() else { return };
    if let Err(error) = tune(stream) {
        tracing::warn!(%error, "cannot set the options of a client's connection");
    }
}

fn tune(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX))
}
