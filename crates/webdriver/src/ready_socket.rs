//! The CDP WebSocket of a session that is opened before a client needs it. A Grid opens it in tens of milliseconds, over
//! its hub and its node.

use std::future::poll_fn;
use std::io::Cursor;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Buf as _, BytesMut};
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};

use crate::cdp::{Head, Refusal};
use crate::dial::{CONNECT_TIMEOUT, GridStream};
use crate::engine::WebDriverEngine;
use crate::record::RemoteSession;

/// The longest payload of a control frame.
const MAX_CONTROL: u64 = 125;

/// An open WebSocket without a client. It is closed when this is dropped.
pub(crate) struct ReadySocket {
    taken: oneshot::Sender<()>,
    keeper: JoinHandle<Option<GridStream>>,
}

impl ReadySocket {
    fn keep(socket: GridStream) -> Self {
        let (taken, is_taken) = oneshot::channel();
        Self { taken, keeper: tokio::spawn(keep(socket, is_taken)) }
    }

    /// Returns the socket; `None` if the server has closed it, or sent more than pings.
    async fn take(self) -> Option<GridStream> {
        // A keeper that has ended does not receive it.
        let _ = self.taken.send(());
        self.keeper.await.ok().flatten()
    }
}

impl WebDriverEngine {
    /// Opens the CDP WebSocket of a tracked session for [`Self::take_ready_socket`]. A failure has no effect: the client
    /// then opens its own.
    pub async fn prepare_socket(&self, session: &RemoteSession) {
        let opening = timeout(self.client.command_timeout() + CONNECT_TIMEOUT, self.open_socket(session));
        let Ok(Ok(socket)) = opening.await else {
            tracing::debug!(engine = %self.name(), browser = %session.browser, "no CDP connection in advance");
            return;
        };
        if let Some(live) = self.state.lock().live.get_mut(&session.browser)
            && live.session.id == session.id
        {
            live.ready_socket = Some(ReadySocket::keep(socket));
        }
    }

    /// Returns the WebSocket that [`Self::prepare_socket`] opened, once: the handshake is done, and only pings were sent since.
    /// `None` if there is none that the server still holds open.
    pub async fn take_ready_socket(&self, session: &RemoteSession) -> Option<GridStream> {
        let socket = {
            let mut state = self.state.lock();
            let live = state.live.get_mut(&session.browser).filter(|live| live.session.id == session.id)?;
            live.ready_socket.take()?
        };
        socket.take().await
    }

    async fn open_socket(&self, session: &RemoteSession) -> Result<GridStream, Refusal> {
        let key = generate_key();
        let value = HeaderValue::from_str(&key).map_err(|_| Refusal::Bad)?;
        let version = HeaderValue::from_static("13");
        let request = Head::websocket(vec![("sec-websocket-key", value), ("sec-websocket-version", version)]);
        let (grid, response) = self.open_at_server(&request, session).await?;
        let accept = derive_accept_key(key.as_bytes());
        let is_accepted = response.handshake().any(|(name, value)| name == "sec-websocket-accept" && *value == accept);
        let has_extensions = response.handshake().any(|(name, _)| name == "sec-websocket-extensions");
        if is_accepted && !has_extensions && response.rest.is_empty() { Ok(grid) } else { Err(Refusal::Server) }
    }
}

/// Answers the pings of the server until the socket is taken: a Grid sends one every half a minute. Returns the socket if the server
/// has sent nothing else, and none of it in part.
async fn keep<S>(mut socket: S, mut taken: oneshot::Receiver<()>) -> Option<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut received = BytesMut::new();
    loop {
        tokio::select! {
            biased;
            is_taken = &mut taken => {
                is_taken.ok()?;
                return (received.is_empty() && is_silent(&mut socket).await).then_some(socket);
            }
            read = socket.read_buf(&mut received) => {
                if read.ok()? == 0 {
                    return None;
                }
            }
        }
        while let Some(pong) = answer(&mut received).ok()? {
            timeout(CONNECT_TIMEOUT, socket.write_all(&pong)).await.ok()?.ok()?;
        }
    }
}

/// Takes the first ping and returns the frame that answers it; `None` if there is no whole frame.
///
/// # Errors
/// What was received is no ping.
fn answer(received: &mut BytesMut) -> Result<Option<Vec<u8>>, NoPing> {
    let mut cursor = Cursor::new(&received[..]);
    let Some((header, length)) = FrameHeader::parse(&mut cursor).map_err(|_| NoPing)? else { return Ok(None) };
    let is_ping = header.is_final && header.mask.is_none() && header.opcode == OpCode::Control(Control::Ping);
    if !is_ping || length > MAX_CONTROL {
        return Err(NoPing);
    }
    let (head, length) = (cursor.position() as usize, length as usize);
    if received.len() < head + length {
        return Ok(None);
    }
    received.advance(head);
    let mut pong = Frame::pong(received.split_to(length).freeze());
    let mut mask = [0; 4];
    getrandom::fill(&mut mask).map_err(|_| NoPing)?;
    pong.header_mut().mask = Some(mask);
    let mut bytes = Vec::new();
    pong.format(&mut bytes).map_err(|_| NoPing)?;
    Ok(Some(bytes))
}

/// The server has sent something that only a client can answer.
#[derive(Debug)]
struct NoPing;

/// Returns whether the server has neither sent nor closed anything.
async fn is_silent(socket: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    poll_fn(|context| Poll::Ready(Pin::new(&mut *socket).poll_read(context, &mut buffer).is_pending())).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pretty_assertions::assert_eq;
    use tokio::io::duplex;

    use super::*;

    /// A ping with the payload `hi`.
    const PING: &[u8] = b"\x89\x02hi";

    #[tokio::test]
    async fn pings_are_answered_until_the_socket_is_taken() {
        let (ours, mut server) = duplex(1024);
        let (take, taken) = oneshot::channel();
        let keeper = tokio::spawn(keep(ours, taken));
        for _ in 0..2 {
            server.write_all(PING).await.unwrap();
            let mut pong = [0; 8];
            server.read_exact(&mut pong).await.unwrap();
            let [opcode, length, mask @ .., first, second] = pong;
            assert_eq!((opcode, length), (0x8A, 0x82), "a masked pong");
            assert_eq!([first ^ mask[0], second ^ mask[1]], *b"hi");
        }
        take.send(()).unwrap();
        let mut ours = keeper.await.unwrap().expect("still open");
        server.write_all(b"x").await.unwrap();
        assert_eq!(ours.read_u8().await.unwrap(), b'x', "the client gets what comes now");
    }

    #[tokio::test]
    async fn a_socket_with_more_or_less_than_whole_pings_is_closed() {
        for sent in [&b"\x81\x02hi"[..], b"\x88\x00", b"\x89\x82mask", b"\x89\x7e\x01\x00", b"\x89", b"\x89\x02h"] {
            let (ours, mut server) = duplex(1024);
            let (take, taken) = oneshot::channel();
            let keeper = tokio::spawn(keep(ours, taken));
            server.write_all(sent).await.unwrap();
            // The keeper reads it.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = take.send(());
            assert!(keeper.await.unwrap().is_none(), "{sent:?}");
        }
    }

    #[tokio::test]
    async fn a_socket_that_is_not_taken_is_closed_with_its_session() {
        let (ours, mut server) = duplex(1024);
        let (take, taken) = oneshot::channel();
        let keeper = tokio::spawn(keep(ours, taken));
        drop(take);
        assert!(keeper.await.unwrap().is_none());
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }
}
