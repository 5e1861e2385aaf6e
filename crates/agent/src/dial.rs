//! The `dial` socket: a caller says where it wants to go and gets a connected socket back, made inside the sandbox.
//!
//! So what relays between a client and the browser talks to the browser directly, and not one byte is copied in here.

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

use crate::state::AgentState;
use casement_agent_protocol::{Channel, DIAL_OK, DIAL_REFUSED};

/// Callers served at once; each is gone within the deadlines.
const MAX_CALLERS: usize = 64;
/// How long a caller may take to say where it wants to go, and to take the answer.
const CALLER: Duration = Duration::from_secs(5);
/// How long a port on the sandbox's own loopback may take.
const PORT: Duration = Duration::from_secs(5);

/// Serves callers until the task is dropped.
pub(crate) async fn serve(listener: UnixListener, core: Arc<AgentState>) {
    let places = Arc::new(Semaphore::new(MAX_CALLERS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((caller, _)) => {
                let core = Arc::clone(&core);
                tokio::spawn(async move {
                    if let Err(error) = answer(caller, &core).await {
                        tracing::debug!(%error, "a caller was not connected");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the dial socket could not accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn answer(mut caller: UnixStream, core: &AgentState) -> io::Result<()> {
    let byte = tokio::time::timeout(CALLER, caller.read_u8()).await??;
    let connected = connect(byte, core).await;
    tokio::time::timeout(CALLER, async {
        match connected {
            Ok(socket) => pass(&caller, &socket).await,
            Err(code) => {
                caller.write_u8(DIAL_REFUSED).await?;
                caller.write_all(code.as_bytes()).await
            }
        }
    })
    .await?
}

async fn connect(byte: u8, core: &AgentState) -> Result<TcpStream, &'static str> {
    let port = match Channel::from_byte(byte).ok_or("unknown_channel")? {
        Channel::Cdp => core.config.debugging_port,
        Channel::WebDriver => core.chromedriver.port().await?,
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let socket = tokio::time::timeout(PORT, TcpStream::connect(address)).await;
    let socket = socket.map_err(|_| "timeout")?.map_err(|_| "not_listening")?;
    // Every message of both protocols is answered before the next: waiting to fill packets would only add delay.
    socket.set_nodelay(true).map_err(|_| "not_listening")?;
    Ok(socket)
}

async fn pass(caller: &UnixStream, socket: &TcpStream) -> io::Result<()> {
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
