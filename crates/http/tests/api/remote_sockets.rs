//! WebSockets to a browser on a WebDriver server.

use std::time::Duration;

use casement_domain::{session::SessionEvent, testing::session_id};
use futures_util::{SinkExt as _, StreamExt as _};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error, Message, client::IntoClientRequest as _},
};

use super::{
    remote::Remote,
    support::{GRID_HOST, GRID_SECRET, GRID_SESSION},
};

type Socket = WebSocketStream<TcpStream>;

/// Opens a socket, as a client with headers of its own.
async fn opened(remote: &Remote, path: &str) -> Result<Socket, Error> {
    let mut request = format!("ws://casement.test{path}").into_client_request().unwrap();
    request.headers_mut().insert("cookie", "of-the-client=1".parse().unwrap());
    let (socket, response) = tokio_tungstenite::client_async(request, remote.api.connect().await).await?;
    let head = format!("{:?}", response.headers());
    assert!(!head.contains("grid"), "{head}");
    Ok(socket)
}

async fn send(socket: &mut Socket, message: Value) {
    socket.send(Message::text(message.to_string())).await.unwrap();
}

async fn next(socket: &mut Socket) -> Message {
    tokio::time::timeout(Duration::from_secs(60), socket.next()).await.expect("a message").unwrap().unwrap()
}

async fn receive(socket: &mut Socket) -> Value {
    serde_json::from_str(next(socket).await.to_text().unwrap()).unwrap()
}

async fn closed(socket: &mut Socket) -> (u16, String) {
    match next(socket).await {
        Message::Close(Some(frame)) => (frame.code.into(), frame.reason.to_string()),
        other => panic!("no close frame but {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_devtools_connection_goes_to_the_endpoint_with_its_credentials() {
    let remote = Remote::start();
    let within = format!("wd/session/{GRID_SESSION}/se/cdp");
    for path in [remote.path("cdp"), remote.path(&within)] {
        let mut socket = opened(&remote, &path).await.unwrap();
        send(&mut socket, json!({ "id": 1, "method": "echo" })).await;
        assert_eq!(receive(&mut socket).await, json!({ "id": 1, "method": "echo" }));
    }
    let seen = remote.grid.seen();
    assert_eq!(seen.len(), 2);
    for seen in seen {
        assert_eq!(seen.line(), format!("GET /base/session/{GRID_SESSION}/se/cdp HTTP/1.1"));
        assert_eq!((seen.header("host"), seen.header("authorization")), (Some(GRID_HOST), Some(GRID_SECRET)));
        assert_eq!((seen.header("cookie"), seen.header("connection")), (None, Some("Upgrade")));
        assert!(!seen.head.contains(&remote.token), "{}", seen.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_pass_a_stream_that_is_no_socket() {
    let remote = Remote::start();
    let mut socket = opened(&remote, &remote.path("cdp")).await.unwrap();
    let long = json!({ "id": 1, "method": "echo", "params": "x".repeat(3_000_000) });
    send(&mut socket, long.clone()).await;
    assert!(receive(&mut socket).await == long);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_servers_socket_is_reported_with_the_reason_of_the_session() {
    for method in ["close", "drop"] {
        let remote = Remote::start();
        let mut socket = opened(&remote, &remote.path("cdp")).await.unwrap();
        send(&mut socket, json!({ "id": 1, "method": method })).await;
        assert_eq!(closed(&mut socket).await, (4009, "node_unreachable".to_owned()), "{method}");

        let mut socket = opened(&remote, &remote.path("cdp")).await.unwrap();
        send(&mut socket, json!({ "id": 1, "method": method })).await;
        remote.api.sessions.end(session_id(1), SessionEvent::Crash).await.unwrap();
        assert_eq!(closed(&mut socket).await, (4002, "crashed".to_owned()), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_frame_of_the_client_is_answered() {
    let remote = Remote::start();
    let mut socket = opened(&remote, &remote.path("cdp")).await.unwrap();
    socket.close(None).await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(60), socket.next()).await.expect("an end");
    assert!(matches!(end, Some(Ok(Message::Close(_)))), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_bidi_session_is_the_one_on_the_server() {
    let remote = Remote::start();
    let mut socket = opened(&remote, &remote.path("webdriver")).await.unwrap();
    send(&mut socket, json!({ "id": 1, "method": "session.status", "params": {} })).await;
    assert_eq!(receive(&mut socket).await["result"]["ready"], json!(true));
    send(&mut socket, json!({ "id": 2, "method": "browsingContext.getTree", "params": {} })).await;
    assert_eq!(receive(&mut socket).await["error"], "invalid session id");
    let request = json!({ "capabilities": { "alwaysMatch": { "pageLoadStrategy": "none" } } });
    send(&mut socket, json!({ "id": 3, "method": "session.new", "params": request })).await;
    assert_eq!(receive(&mut socket).await["error"], "session not created");
    assert_eq!(remote.grid.messages(), Vec::<Value>::new());

    send(&mut socket, json!({ "id": 4, "method": "session.new", "params": { "capabilities": {} } })).await;
    let made = receive(&mut socket).await;
    assert_eq!((&made["type"], &made["result"]["sessionId"]), (&json!("success"), &json!(GRID_SESSION)));
    let address = made["result"]["capabilities"]["webSocketUrl"].as_str().unwrap();
    assert!(
        address.starts_with(&format!("wss://casement.test/vm/{}/webdriver/session/{GRID_SESSION}?jwt=", session_id(1)))
    );
    assert!(!made.to_string().contains(GRID_HOST), "{made}");
    send(&mut socket, json!({ "id": 5, "method": "browsingContext.getTree", "params": {} })).await;
    assert_eq!(receive(&mut socket).await["id"], 5);
    assert_eq!(remote.grid.seen()[0].line(), format!("GET /base/session/{GRID_SESSION}/se/bidi HTTP/1.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_bidi_session_leaves_the_remote_browser_alone() {
    let remote = Remote::start();
    for path in ["webdriver/session/".to_owned() + GRID_SESSION, format!("wd/session/{GRID_SESSION}/se/bidi")] {
        let mut socket = opened(&remote, &remote.path(&path)).await.unwrap();
        send(&mut socket, json!({ "id": 1, "method": "session.end", "params": {} })).await;
        assert_eq!(receive(&mut socket).await, json!({ "type": "success", "id": 1, "result": {} }));
        assert_eq!(closed(&mut socket).await, (1000, "normal".to_owned()));
    }
    assert_eq!(remote.grid.messages(), Vec::<Value>::new());
    for path in ["webdriver/session/other", "wd/session/other/se/bidi", "wd/session/other/se/cdp"] {
        let refused = opened(&remote, &remote.path(path)).await;
        assert!(matches!(&refused, Err(Error::Http(response)) if response.status() == 404), "{path}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_name_only_files_that_were_uploaded_to_the_browsers_machine() {
    let remote = Remote::start();
    remote.grid.answers("200 OK", "content-type: application/json\r\n", r#"{"value":"/tmp/upload/a.txt"}"#);
    let upload = remote.path(&format!("wd/session/{GRID_SESSION}/se/file"));
    assert_eq!(remote.api.request("POST", &upload, &[], r#"{"file":""}"#).await.status, 200);
    let mut socket = opened(&remote, &remote.path("cdp")).await.unwrap();
    let command = |path: &str| json!({ "id": 1, "method": "DOM.setFileInputFiles", "params": { "files": [path] } });
    send(&mut socket, command("/etc/passwd")).await;
    let refused = receive(&mut socket).await["error"]["message"].as_str().unwrap().to_owned();
    assert!(refused.contains("/etc/passwd") && refused.contains("se/file"), "{refused}");
    send(&mut socket, command("/tmp/upload/a.txt")).await;
    assert_eq!(receive(&mut socket).await, command("/tmp/upload/a.txt"), "the echo of the server");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_socket_to_a_remote_browser_counts_as_activity() {
    let remote = Remote::start();
    let socket = opened(&remote, &remote.path("cdp")).await.unwrap();
    remote.api.clock.advance(time::Duration::seconds(61));
    assert_eq!(remote.api.sessions.activity().idle(), []);
    drop(socket);
}
