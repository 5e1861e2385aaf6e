//! The ways out: a proxy on the loopback, and Casement's own API where its address leads.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

use crate::protocol::{Config, EGRESS_PATH};

/// Connections open at once, of each way.
const MAX_CONNECTIONS: usize = 256;
/// The longest head of an answer to `CONNECT`.
const MAX_HEAD: usize = 8 << 10;

/// Opens the ports. Done before anything of a caller runs, so that nothing else can take them.
pub(super) async fn start(config: &Config) -> io::Result<()> {
    tokio::spawn(accept(TcpListener::bind(("127.0.0.1", config.proxy_port)).await?, None));
    if let Some(base) = &config.base {
        let listener = TcpListener::bind((base.address, base.port)).await?;
        tokio::spawn(accept(listener, Some(base.authority.clone())));
    }
    Ok(())
}

/// Serves connections: to the proxy as they are, or through it to one place.
async fn accept(listener: TcpListener, to: Option<String>) {
    let (to, places) = (Arc::new(to), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((inner, _)) => {
                let to = Arc::clone(&to);
                tokio::spawn(async move {
                    // Either side may break off at any time: that ends the other and is no news.
                    if let Err(error) = pass(inner, to.as_deref()).await {
                        tracing::debug!(%error, "a connection out ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the forwarder could not accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn pass(mut inner: TcpStream, to: Option<&str>) -> io::Result<()> {
    inner.set_nodelay(true)?;
    // Connected anew each time: the socket vanishes while the server restarts and comes back under the same name.
    let mut outer = UnixStream::connect(EGRESS_PATH).await?;
    if let Some(to) = to {
        outer.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await?;
        opened(&mut outer).await?;
    }
    copy_bidirectional(&mut inner, &mut outer).await.map(drop)
}

/// Reads the head of the proxy's answer, and nothing behind it.
async fn opened(outer: &mut UnixStream) -> io::Result<()> {
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
