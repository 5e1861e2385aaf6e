//! Loopback listeners of a sandbox: the egress proxy, and Casement's own API at its address.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

use crate::protocol::{Config, EGRESS_PATH};

/// The maximum number of simultaneous connections of each listener.
const MAX_CONNECTIONS: usize = 256;
/// The longest head of a `CONNECT` response, in bytes.
const MAX_HEAD: usize = 8 << 10;

/// Opens the ports. Must be called before code of a caller runs, which could bind them.
pub(super) async fn start(config: &Config) -> io::Result<()> {
    tokio::spawn(accept(TcpListener::bind(("127.0.0.1", config.proxy_port)).await?, None));
    if let Some(base) = &config.base {
        let listener = TcpListener::bind((base.address, base.port)).await?;
        tokio::spawn(accept(listener, Some(base.authority.clone())));
    }
    Ok(())
}

/// Accepts connections, and passes them to the proxy, or through a tunnel of the proxy to `to`.
async fn accept(listener: TcpListener, to: Option<String>) {
    let (to, places) = (Arc::new(to), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((inner, _)) => {
                let to = Arc::clone(&to);
                tokio::spawn(async move {
                    // Either side may close at any time, which ends the other side.
                    if let Err(error) = pass(inner, to.as_deref()).await {
                        tracing::debug!(%error, "an outgoing connection failed");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the forwarder cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn pass(mut inner: TcpStream, to: Option<&str>) -> io::Result<()> {
    inner.set_nodelay(true)?;
    // A new connection each time: the socket disappears while the server restarts.
    let mut outer = UnixStream::connect(EGRESS_PATH).await?;
    if let Some(to) = to {
        outer.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await?;
        read_connect_response(&mut outer).await?;
    }
    copy_bidirectional(&mut inner, &mut outer).await.map(drop)
}

/// Reads the head of the proxy's response, and no bytes after it.
async fn read_connect_response(outer: &mut UnixStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            return Err(io::Error::other("too long a head"));
        }
        head.push(outer.read_u8().await?);
    }
    match head.get(9..12) {
        Some(b"200") => Ok(()),
        _ => Err(io::Error::other("refused")),
    }
}
