//! The `dial` socket: a caller names a channel and receives a connected socket that was opened inside the sandbox.
//!
//! The relay between a client and the browser thereby talks to the browser directly; the agent copies no bytes.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::chromedriver::Chromedriver;
use casement_agent_protocol::{Channel, DIAL_OK, DIAL_REFUSED};

/// The maximum number of concurrent callers; each ends within the timeouts.
const MAX_CALLERS: usize = 64;
/// The timeout for a caller to name its channel, and to receive the response.
const CALLER_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of connecting to a port on the sandbox's loopback.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves callers until the task is dropped. `debugging_port` is `None` for a remote browser, to which no channel leads
/// from here.
pub(crate) async fn serve(listener: UnixListener, debugging_port: Option<u16>, chromedriver: Arc<Chromedriver>) {
    let slots = Arc::new(Semaphore::new(MAX_CALLERS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((caller, _)) => {
                let chromedriver = Arc::clone(&chromedriver);
                tokio::spawn(async move {
                    if let Err(error) = answer(caller, debugging_port, &chromedriver).await {
                        tracing::debug!(%error, "cannot connect a caller");
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the dial socket");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn answer(mut caller: UnixStream, debugging_port: Option<u16>, chromedriver: &Chromedriver) -> io::Result<()> {
    let byte = tokio::time::timeout(CALLER_TIMEOUT, caller.read_u8()).await??;
    let connected = connect(byte, debugging_port, chromedriver).await;
    tokio::time::timeout(CALLER_TIMEOUT, async {
        match connected {
            Ok(socket) => send_descriptor(&caller, &socket).await,
            Err(code) => {
                caller.write_u8(DIAL_REFUSED).await?;
                caller.write_all(code.as_bytes()).await
            }
        }
    })
    .await?
}

async fn connect(
    byte: u8,
    debugging_port: Option<u16>,
    chromedriver: &Chromedriver,
) -> Result<TcpStream, &'static str> {
    let channel = Channel::from_byte(byte).ok_or("unknown_channel")?;
    let debugging_port = debugging_port.ok_or("remote_browser")?;
    let port = match channel {
        Channel::Cdp => debugging_port,
        Channel::WebDriver => chromedriver.port().await?,
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let socket = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
    let socket = socket.map_err(|_| "timeout")?.map_err(|_| "not_listening")?;
    // Both protocols alternate requests and responses: waiting to fill packets would only add delay.
    socket.set_nodelay(true).map_err(|_| "not_listening")?;
    Ok(socket)
}

async fn send_descriptor(caller: &UnixStream, socket: &TcpStream) -> io::Result<()> {
    caller
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let sockets = [socket.as_fd()];
            if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
                return Err(io::Error::other("no room for a descriptor"));
            }
            sendmsg(caller, &[IoSlice::new(&[DIAL_OK])], &mut control, SendFlags::NOSIGNAL)?;
            Ok(())
        })
        .await
}
