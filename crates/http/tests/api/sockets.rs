//! WebSockets to a session: their close reasons, and their effect on the idle timeout.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use casement_domain::{
    BrowserId,
    live_view::MAX_WATCHING_VIEWS,
    session::SessionEvent,
    session_operation::OperationError,
    store_error::Replaced,
    telemetry::Followed,
    testing::{session, session_id},
};
use casement_http::{
    Permission, SessionConnector,
    relay::{BrowserConnection, BrowserConnector, Channel, ConnectorError},
};
use casement_test_support::websocket::frame;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use pretty_assertions::assert_eq;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::support::{Key, Ports, TestApi, Trail, request};

/// A browser that echoes all messages.
pub(super) struct Echo(SocketAddr);

impl Echo {
    pub(super) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                    while let Some(Ok(message)) = socket.next().await {
                        if message.is_text() && socket.send(message).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Arc::new(Self(address))
    }
}

impl SessionConnector for Echo {
    fn connector(&self, _: BrowserId) -> Arc<dyn BrowserConnector> {
        Arc::new(Self(self.0))
    }

    fn protocol(&self) -> Option<bytes::Bytes> {
        Some(bytes::Bytes::from_static(br#"{"domains":[]}"#))
    }
}

#[async_trait]
impl BrowserConnector for Echo {
    async fn dial(&self, _: Channel) -> Result<BrowserConnection, ConnectorError> {
        std::net::TcpStream::connect(self.0)
            .map(BrowserConnection::local)
            .map_err(|error| ConnectorError::Unavailable(error.into()))
    }

    async fn cdp_path(&self) -> Result<String, ConnectorError> {
        Ok("/devtools/browser/x".to_owned())
    }
}

pub(super) async fn api() -> TestApi {
    let mut ports = Ports { session_connector: Some(Echo::start().await), ..Ports::default() };
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    ports.sessions.expect_end().returning(|_, _| Ok(Replaced::Yes));
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    let api = TestApi::start(ports);
    api.sessions.activity().watch(&session(1));
    api
}

/// Opens a socket and checks that it works.
async fn open(api: &TestApi) -> WebSocketStream<TcpStream> {
    let token = api.token(session_id(1), Permission::Drive);
    let url = format!("ws://casement.test/vm/{}/cdp?jwt={token}", session_id(1));
    let (mut socket, _) = tokio_tungstenite::client_async(url, api.connect().await).await.unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
    socket
}

/// Returns the code and the reason of the next close frame.
async fn closed(socket: &mut WebSocketStream<TcpStream>) -> (u16, String) {
    let next = tokio::time::timeout(Duration::from_secs(60), socket.next()).await.expect("an end");
    match next {
        Some(Ok(Message::Close(Some(frame)))) => (frame.code.into(), frame.reason.to_string()),
        other => panic!("no close frame but {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_closes_its_sockets_with_the_reason() {
    for (event, code, reason) in [
        (SessionEvent::Delete, 4000, "deleted"),
        (SessionEvent::IdleTimeout, 4001, "idle_timeout"),
        (SessionEvent::Crash, 4002, "crashed"),
        (SessionEvent::OutOfMemory, 4006, "oom"),
        (SessionEvent::BrowserClosed, 4007, "browser_closed"),
        (SessionEvent::BrowserHung, 4008, "browser_hung"),
        (SessionEvent::NodeDrained, 4010, "node_drained"),
        (SessionEvent::EngineLost, 4011, "engine_lost"),
    ] {
        let api = api().await;
        let (mut one, mut other) = (open(&api).await, open(&api).await);
        api.sessions.end(session_id(1), event).await.unwrap();
        for socket in [&mut one, &mut other] {
            assert_eq!(closed(socket).await, (code, reason.to_owned()));
        }
    }
}

/// Checks that connections end as soon as both close frames were sent, while the server still waits for the close frame of a client
/// that does not answer.
pub(super) async fn check_ends_after_both_close_frames(api: &TestApi) {
    let mut silent = open(api).await;
    let silent = silent.get_mut();
    silent.write_all(&frame(true, 2, b"refused", Some([1; 4]))).await.unwrap();
    let closing = async {
        // The server waits for seconds for the silent client. If it did so here too, these would take longer together.
        for _ in 0..3 {
            let mut socket = open(api).await;
            socket.close(None).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                assert!(message.is_close(), "{message:?}");
            }
        }
    };
    let waiting = async {
        let mut rest = Vec::new();
        let _ = silent.read_to_end(&mut rest).await;
    };
    tokio::select! {
        biased;
        () = closing => {}
        () = waiting => panic!("the connections stay open after both close frames"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_after_both_close_frames() {
    check_ends_after_both_close_frames(&api().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_closes_sockets_with_drain_and_stops_soon() {
    let api = api().await;
    let mut socket = open(&api).await;
    let draining = tokio::spawn(api.server.drain());
    assert_eq!(closed(&mut socket).await, (1012, "drain".to_owned()));
    drop(socket);
    tokio::time::timeout(Duration::from_secs(60), draining).await.expect("done").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_and_a_stream_are_recorded_while_they_are_open() {
    let (socket_trail, stream_trail) = (Trail::default(), Trail::default());
    let mut ports =
        Ports { session_connector: Some(Echo::start().await), trail: socket_trail.clone(), ..Ports::default() };
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let api = TestApi::start(ports);
    let mut socket = open(&api).await;
    let recorded = socket_trail.entries().await;
    assert_eq!(recorded.iter().map(|(_, entry)| entry.status).collect::<Vec<_>>(), [101]);
    socket.send(Message::text("still open")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("still open"));

    let mut ports = Ports { trail: stream_trail.clone(), ..Ports::default() };
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.feed.expect_follow().returning(|_, _| Ok(stream::pending::<Followed>().boxed()));
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let mut events = api.connect().await;
    let path = format!("/browsers/{}/telemetry/stream", session_id(1));
    events.write_all(&request("GET", &path, &[&key], "")).await.unwrap();
    let recorded = stream_trail.entries().await;
    assert_eq!(recorded.iter().map(|(_, entry)| entry.status).collect::<Vec<_>>(), [200]);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert_ne!(events.read_buf(&mut head).await.unwrap(), 0, "it goes on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_socket_counts_as_activity() {
    let api = api().await;
    let activity = api.sessions.activity();
    let socket = open(&api).await;
    let timeout = time::Duration::seconds(61);
    api.clock.advance(timeout);
    assert_eq!(activity.idle(), []);
    assert!(!activity.is_watched(session_id(1)), "nobody watches");
    drop(socket);
    let closed = async {
        while activity.idle().is_empty() {
            api.clock.advance(timeout);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), closed).await.expect("idle once the socket is gone");
    assert_eq!(activity.idle(), [session_id(1)]);
}

/// Opens a live view and returns its first message.
async fn view(api: &TestApi, permission: Permission) -> (WebSocketStream<TcpStream>, Message) {
    let token = api.token(session_id(1), permission);
    let url = format!("ws://casement.test/live/{}/socket?jwt={token}", session_id(1));
    let (mut socket, _) = tokio_tungstenite::client_async(url, api.connect().await).await.unwrap();
    let first =
        tokio::time::timeout(Duration::from_secs(60), socket.next()).await.expect("a message").unwrap().unwrap();
    (socket, first)
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_of_a_view_only_link_leave_places_to_people_who_may_act() {
    let mut ports = Ports { session_connector: Some(Echo::start().await), ..Ports::default() };
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    ports.displays.expect_next_frame().returning(|_, _| Err(OperationError::State("no picture".to_owned())));
    let api = TestApi::start(ports);
    api.sessions.activity().watch(&session(1));
    let mut watching = Vec::new();
    for _ in 0..MAX_WATCHING_VIEWS {
        let (socket, first) = view(&api, Permission::View).await;
        assert!(first.is_text(), "{first:?}");
        watching.push(socket);
    }
    let (_, refused) = view(&api, Permission::View).await;
    let Message::Close(Some(frame)) = refused else { panic!("a place too many: {refused:?}") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4012, "too_many_viewers"));
    let (mut operator, first) = view(&api, Permission::Interact).await;
    assert!(first.is_text(), "{first:?}");
    // A picture that cannot be read is told, too.
    let reported = async {
        while let Some(Ok(message)) = operator.next().await {
            if message.to_text().is_ok_and(|text| text == r#"{"t":"unavailable"}"#) {
                return;
            }
        }
        panic!("the view ended");
    };
    tokio::time::timeout(Duration::from_secs(60), reported).await.expect("reported");
    drop(watching.pop());
    let freed = async { while !view(&api, Permission::View).await.1.is_text() {} };
    tokio::time::timeout(Duration::from_secs(60), freed).await.expect("a place is free again");
}
