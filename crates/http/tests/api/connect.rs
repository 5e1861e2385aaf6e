//! `/connect`: a WebSocket makes a session; keys come in many places; addresses with connect tokens.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use casement_domain::{
    SessionId,
    audit::AuthStrategy,
    browser::Started,
    pool::ImmediateLease,
    session::{Connections as _, Created, EndReason, SessionState},
    store_error::Replaced,
    testing::{leased_session, pool, session, session_id},
};
use futures_util::{SinkExt as _, StreamExt as _};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error, Message, client::IntoClientRequest as _, handshake::client::Response},
};

use super::{
    acquire::until,
    sockets::Echo,
    support::{Key, Ports, TestApi, Trail, request},
};

const IDLE: time::Duration = time::Duration::seconds(6);

/// Returns the ports of a server that can start sessions, whose browsers echo.
async fn startable() -> Ports {
    let mut ports = Ports { session_connector: Some(Echo::start().await), ..Ports::default() };
    ports.spares.expect_take().returning(|_| None);
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    ports.engine.expect_start().returning(|_| Ok(Started::default()));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports
}

pub(super) fn key() -> String {
    Key::Organization.text()
}

/// Opens a WebSocket at a path with headers.
pub(super) async fn socket(
    api: &TestApi,
    path: &str,
    headers: &[(&'static str, String)],
) -> Result<(WebSocketStream<TcpStream>, Response), Error> {
    let mut request = format!("ws://casement.test{path}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let (socket, response) = tokio_tungstenite::client_async(request, api.connect().await).await?;
    Ok((socket, response.map(|_| None)))
}

/// Returns the status and the code of a refused WebSocket.
pub(super) async fn refused(api: &TestApi, path: &str) -> (u16, String) {
    match socket(api, path, &[]).await {
        Err(Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            (response.status().as_u16(), body["code"].as_str().unwrap().to_owned())
        }
        other => panic!("not refused: {:?}", other.map(|_| ())),
    }
}

/// Returns the session that a connection has made.
pub(super) fn made(response: &Response) -> SessionId {
    response.headers()["x-casement-session-id"].to_str().unwrap().parse().unwrap()
}

/// Waits until the server has noticed that all connections to a session are closed.
async fn closed(api: &TestApi, id: SessionId) {
    until("closed", || api.connections.count(id) == 0).await;
}

pub(super) async fn echoes(socket: &mut WebSocketStream<TcpStream>) {
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_makes_a_session_that_ends_soon_after_its_last_connection() {
    let api = TestApi::start(startable().await);
    let (mut open, response) = socket(&api, &format!("/connect?token={}&headless=true", key()), &[]).await.unwrap();
    echoes(&mut open).await;
    let id = made(&response);
    let activity = api.sessions.activity();
    api.clock.advance(IDLE);
    assert_eq!(activity.idle(), [], "it has a connection");
    drop(open);
    until("idle", || {
        api.clock.advance(IDLE);
        activity.idle() == [id]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_to_keep_has_its_own_idle_timeout() {
    let api = TestApi::start(startable().await);
    let path = format!("/connect?token={}&keep=true&timeout_seconds=600", key());
    let (open, response) = socket(&api, &path, &[]).await.unwrap();
    let activity = api.sessions.activity();
    drop(open);
    closed(&api, made(&response)).await;
    api.clock.advance(time::Duration::seconds(590));
    assert_eq!(activity.idle(), []);
    until("idle", || {
        api.clock.advance(time::Duration::seconds(601));
        activity.idle().len() == 1
    })
    .await;
}

/// Returns the ports of [`startable`], and whether the session was deleted.
async fn deletable() -> (Ports, Arc<AtomicBool>) {
    let ended = Arc::new(AtomicBool::new(false));
    let mut ports = startable().await;
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let ending = ended.clone();
    ports.sessions.expect_end().returning(move |_, next| {
        ending.store(next.state == SessionState::Ended(EndReason::Deleted), Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    (ports, ended)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_at_the_bound_of_its_whole_duration() {
    let (ports, ended) = deletable().await;
    let api = TestApi::start(ports);
    let (mut open, _) = socket(&api, &format!("/connect?token={}&timeout=1", key()), &[]).await.unwrap();
    until("ended", || ended.load(Ordering::SeqCst)).await;
    drop(open.close(None).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_browser_does_not_lift_the_bound() {
    let (ports, ended) = deletable().await;
    let api = TestApi::start(ports);
    let path = format!("/connect?token={}&keep=true&timeout=5000", key());
    let (mut open, response) = socket(&api, &path, &[]).await.unwrap();
    let open = tokio::spawn(async move { while matches!(open.next().await, Some(Ok(Message::Text(_)))) {} });
    // The connection may be registered after the handshake.
    until("the connection has ended", || {
        api.connections.restarted(made(&response));
        open.is_finished()
    })
    .await;
    assert!(!ended.load(Ordering::SeqCst), "the connection ends before");
    until("ended", || ended.load(Ordering::SeqCst)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_accepted_in_every_place_where_clients_put_it() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let basic = |pair: String| format!("Basic {}", STANDARD.encode(pair));
    let api = TestApi::start(startable().await);
    for (path, headers) in [
        (format!("/connect?token={}", key()), vec![]),
        (format!("/connect?apiKey={}", key()), vec![]),
        ("/connect".to_owned(), vec![("authorization", format!("Bearer {}", key()))]),
        ("/connect".to_owned(), vec![("authorization", basic(format!("user:{}", key())))]),
        ("/connect".to_owned(), vec![("authorization", basic(format!("{}:", key())))]),
        ("/connect/webdriver".to_owned(), vec![("x-api-key", key())]),
    ] {
        socket(&api, &path, &headers).await.unwrap_or_else(|error| panic!("{path} {headers:?}: {error}"));
    }
    assert_eq!(refused(&api, "/connect").await, (401, "unauthorized".to_owned()));
    assert_eq!(refused(&api, "/connect?token=csk_x").await, (401, "unauthorized".to_owned()));
    let both = format!("/connect?token={}&apiKey={}", key(), Key::OtherProject.text());
    assert_eq!(refused(&api, &both).await, (401, "unauthorized".to_owned()));
    let password = format!("Authorization: {}", basic(format!("user:{}", key())));
    let bearer = format!("Authorization: Bearer {}", Key::OtherProject.text());
    for (path, headers, status) in [
        ("/json/version", vec![&*password], 200),
        ("/json/version", vec![&*password, &*bearer], 401),
        ("/wd/hub/session/a-b/url", vec![&*bearer, &*password], 401),
        ("/wd/hub/session/a-b/url?jwt=x", vec!["Origin: https://attacker.test", &*password], 401),
    ] {
        assert_eq!(api.request("GET", path, &headers, "").await.status, status, "{path} {headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_comes_before_the_upgrade_and_makes_no_session() {
    let api = TestApi::start(Ports::default());
    for (parameters, status, code) in [
        ("pol=x", 400, "invalid_input"),
        ("blockAds=true", 400, "not_supported"),
        ("--lang=de", 400, "not_supported"),
        ("timeout_seconds=5&keep=true", 400, "invalid_input"),
        ("pool=x&headless=true", 400, "invalid_input"),
    ] {
        let path = format!("/connect?token={}&{parameters}", key());
        assert_eq!(refused(&api, &path).await, (status, code.to_owned()), "{parameters}");
    }
    let plain = api.get("/connect").await;
    assert_eq!((plain.status, plain.header("upgrade")), (400, Some("websocket")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_during_the_start_leaves_no_session() {
    let (reached, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut ports = Ports::default();
    ports.spares.expect_take().returning(|_| None);
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    let starting = reached.clone();
    ports.engine.expect_start().returning(move |_| {
        starting.store(true, Ordering::SeqCst);
        // The start takes longer than a disconnect and its detection.
        std::thread::sleep(Duration::from_secs(2));
        Ok(Started::default())
    });
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let ending = ended.clone();
    ports.sessions.expect_end().returning(move |_, next| {
        ending.store(next.state == SessionState::Ended(EndReason::Undelivered), Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    let api = TestApi::start(ports);
    let upgrade = [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ];
    let mut stream = api.connect().await;
    stream.write_all(&request("GET", &format!("/connect?token={}", key()), &upgrade, "")).await.unwrap();
    until("starting", || reached.load(Ordering::SeqCst)).await;
    drop(stream);
    until("ended", || ended.load(Ordering::SeqCst)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_cannot_be_reached_ends_with_its_session() {
    let ended = Arc::new(AtomicBool::new(false));
    let mut ports = Ports { session_connector: None, ..startable().await };
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let ending = ended.clone();
    ports.sessions.expect_end().returning(move |_, _| {
        ending.store(true, Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    let api = TestApi::start(ports);
    let path = format!("/connect?token={}", key());
    assert_eq!(refused(&api, &path).await, (503, "browser_unavailable".to_owned()));
    until("ended", || ended.load(Ordering::SeqCst)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_lends_a_browser_or_refuses_with_503() {
    for (lease, status) in [(ImmediateLease::Leased(Box::new(leased_session(1))), 101), (ImmediateLease::Busy, 503)] {
        let mut ports = Ports { session_connector: Some(Echo::start().await), ..Ports::default() };
        ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
        ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
        ports.wait_queue.expect_take_now().return_once(|_, _, _| Ok(lease));
        ports.engine.expect_hand_out().returning(|_, _| Ok(()));
        let api = TestApi::start(ports);
        let path = format!("/connect?token={}&pool=x&acquire_timeout_seconds=0", key());
        match status {
            101 => {
                let (mut open, response) = socket(&api, &path, &[]).await.unwrap();
                echoes(&mut open).await;
                assert_eq!(response.headers()["x-casement-session-id"], session_id(1).to_string());
                drop(open);
                let activity = api.sessions.activity();
                until("idle", || {
                    api.clock.advance(IDLE);
                    activity.idle() == [session_id(1)]
                })
                .await;
            }
            _ => assert_eq!(refused(&api, &path).await, (503, "unavailable".to_owned())),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_exists_is_connected_to_and_lives_on() {
    let mut ports = Ports { session_connector: Some(Echo::start().await), ..Ports::default() };
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let api = TestApi::start(ports);
    api.sessions.activity().watch(&session(1));
    let path = format!("/connect?apiKey={}&sessionId={}", key(), session_id(1));
    let (mut open, response) = socket(&api, &path, &[]).await.unwrap();
    echoes(&mut open).await;
    assert!(response.headers().get("x-casement-session-id").is_none(), "it was not made here");
    drop(open);
    closed(&api, session_id(1)).await;
    api.clock.advance(time::Duration::seconds(30));
    assert_eq!(api.sessions.activity().idle(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discovered_address_opens_sessions_without_the_key_for_a_minute() {
    let api = TestApi::start(startable().await);
    for path in ["/json/version/", "/connect/json/version"] {
        let found = api.request("GET", &format!("{path}?token={}&headless=1", key()), &[], "").await;
        assert_eq!(found.status, 200, "{found}");
        let address = found.json()["webSocketDebuggerUrl"].as_str().unwrap().to_owned();
        assert!(address.starts_with("wss://casement.test/connect?connect_token="), "{address}");
        assert!(address.contains("&headless=1") && !address.contains("csk_"), "{address}");
        let path = address.strip_prefix("wss://casement.test").unwrap();
        let (mut open, _) = socket(&api, path, &[]).await.unwrap();
        echoes(&mut open).await;

        let query = path.split_once('?').unwrap().1;
        let elsewhere = api.request("GET", &format!("/browsers?{query}"), &[], "").await;
        assert_eq!(elsewhere.status, 401, "it opens nothing else");
        api.clock.advance(time::Duration::seconds(61));
        assert_eq!(refused(&api, path).await, (401, "unauthorized".to_owned()));
    }
    let list = api.request("GET", &format!("/json/list?token={}", key()), &[], "").await;
    assert_eq!((list.status, list.json()), (200, json!([])));
    let wrong = api.request("GET", &format!("/json/version?token={}&pol=x", key()), &[], "").await;
    assert_eq!((wrong.status, &*wrong.code()), (400, "invalid_input"));
    assert_eq!(api.request("GET", "/json/version", &[], "").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_of_the_protocol_alone_needs_no_key() {
    let api = TestApi::start(Ports { session_connector: Some(Echo::start().await), ..Ports::default() });
    for path in ["/json/protocol", "/connect/json/protocol"] {
        let found = api.request("GET", path, &[], "").await;
        assert_eq!((found.status, found.json()), (200, json!({ "domains": [] })), "{path}");
    }
    for path in ["/json", "/json/list", "/json/version", "/connect/json"] {
        assert_eq!(api.request("GET", path, &[], "").await.status, 401, "{path}");
    }
    let api = TestApi::start(Ports::default());
    let early = api.request("GET", "/json/protocol", &[], "").await;
    assert_eq!((early.status, early.code()), (503, "unavailable".to_owned()), "no browser has started yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_a_connection_holds_no_key() {
    let trail = Trail::default();
    let api = TestApi::start(Ports { trail: trail.clone(), ..startable().await });
    let (open, _) = socket(&api, &format!("/connect?token={}", key()), &[]).await.unwrap();
    let entries = trail.entries().await;
    let (_, entry) = entries.first().expect("a record");
    assert_eq!((entry.path.as_str(), entry.status), ("/connect", 101));
    assert_eq!(entry.auth_strategy, AuthStrategy::ApiKey);
    let intents = trail.intents.lock().clone();
    assert_eq!(intents.len(), 1, "it is recorded before anything is done");
    assert!(!format!("{entries:?}{intents:?}").contains(&key()));
    drop(open);
}
