//! Connections into a sandbox: the client of the agent's `dial` socket.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, getpeername, recvmsg, sockopt,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::ClientError;
use super::stream::connect;
use crate::{Channel, DIAL_OK};

/// The timeout of a dialled connection; the first WebDriver connection includes the start of chromedriver.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest message of a refused dial, in bytes.
const MAX_DIAL_MESSAGE: u64 = 128;

/// Connects through the sandbox to `channel` by the `dial` socket at `path`. The socket is non-blocking and
/// close-on-exec.
///
/// # Errors
/// [`ClientError::NotConnected`] with the agent's message if nothing listens in the sandbox,
/// [`ClientError::NotASocket`] if the agent passed something other than a TCP socket, [`ClientError::Connect`] if the
/// sandbox has ended, [`ClientError::Timeout`].
pub async fn dial(path: impl AsRef<Path>, channel: Channel) -> Result<TcpStream, ClientError> {
    timeout(DIAL_TIMEOUT, async {
        let mut stream = connect(path.as_ref()).await.map_err(ClientError::Connect)?;
        stream.write_all(&[channel.byte()]).await.map_err(ClientError::Connect)?;
        let (byte, passed) = receive(&stream).await.map_err(ClientError::Connect)?;
        if byte != DIAL_OK {
            let mut word = Vec::new();
            stream.take(MAX_DIAL_MESSAGE).read_to_end(&mut word).await.map_err(ClientError::Connect)?;
            return Err(ClientError::NotConnected(String::from_utf8_lossy(&word).into_owned()));
        }
        let socket = tcp_only(passed.ok_or(ClientError::NotASocket)?)?;
        socket.set_nonblocking(true).map_err(ClientError::Connect)?;
        Ok(socket)
    })
    .await
    .map_err(|_| ClientError::Timeout(DIAL_TIMEOUT))?
}

/// Receives one byte and a descriptor. Closes further descriptors.
async fn receive(stream: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0; 1];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let message = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
            if message.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut passed = None;
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                    passed = descriptors.last();
                }
            }
            Ok((byte[0], passed))
        })
        .await
}

/// Checks that the descriptor is a connected TCP socket, because the sandbox is untrusted.
fn tcp_only(passed: OwnedFd) -> Result<TcpStream, ClientError> {
    let domain = sockopt::socket_domain(&passed).map_err(|_| ClientError::NotASocket)?;
    let kind = sockopt::socket_type(&passed).map_err(|_| ClientError::NotASocket)?;
    let inet = domain == AddressFamily::INET || domain == AddressFamily::INET6;
    if !inet || kind != SocketType::STREAM {
        return Err(ClientError::NotASocket);
    }
    // The listener may have ended in between, and a socket that was never connected is useless.
    getpeername(&passed).map_err(|_| ClientError::NotConnected("closed".to_owned()))?;
    Ok(TcpStream::from(passed))
}
