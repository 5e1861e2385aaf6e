//! Where the program is, and free ports.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// Returns the path of the built program. Cargo puts it beside the folder of the test programs and benchmarks.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the test program has a path");
    let folder = test.ancestors().nth(2).expect("it is in `deps`");
    folder.join("casement")
}

/// Reserves a port of an address for as long as the socket exists, also while the server does not run. Nothing listens
/// on the socket itself, and `SO_REUSEADDR` lets the server listen on the same address.
pub(super) fn port_at(ip: IpAddr) -> anyhow::Result<(TcpSocket, SocketAddr)> {
    let socket = if ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(ip, 0)).with_context(|| format!("no port at {ip}"))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}
