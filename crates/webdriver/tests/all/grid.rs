//! A real Selenium Grid as the server.

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use casement_webdriver::{Channel, GridError};
use futures_util::{SinkExt as _, StreamExt as _};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Message, protocol::Role};

use crate::programs::{Grid, SESSION_TIMEOUT};
use crate::support::{TEST_TIMEOUT, Watch, browser, config, engine, start_error, started};

#[tokio::test]
async fn a_grid_is_checked_filled_swept_and_gets_signs_of_life() {
    let grid = Grid::start(1).await;
    let mut settings = config(&grid.url);
    settings.session_timeout = SESSION_TIMEOUT;
    settings.queue_timeout = Some(Duration::from_secs(30));
    let engine = engine(settings.clone());
    let checked = engine.check(browser(1)).await.expect("it can be the engine");
    let nodes = checked.status.nodes.expect("a Grid has nodes");
    assert_eq!((nodes.up, nodes.chrome, nodes.free), (1, 1, 1));
    assert!(checked.has_downloads);

    let mut watch = Watch::of(&engine);
    let session = started(&engine, 2).await;
    let GridError::Busy { reason } = start_error(&engine, 3).await else { panic!("the Grid is full") };
    assert!(reason.contains("timed out") && reason.ends_with("(all 1 slots for Chrome are in use)"), "{reason}");

    // Longer than an idle session lives.
    assert_eq!(watch.next(SESSION_TIMEOUT + Duration::from_secs(2)).await, None);
    assert_eq!(engine.is_active(&session).await, Ok(true));

    let later = crate::support::engine(settings);
    let swept = later.sweep(&HashSet::from([browser(2)])).await.expect("swept");
    assert_eq!(swept.found[&browser(2)], std::slice::from_ref(&session));
    let swept = later.sweep(&HashSet::new()).await.expect("swept");
    assert_eq!(swept.ended, 1);
    let lost = watch.next(TEST_TIMEOUT).await.expect("lost");
    assert_eq!(lost.browser, browser(2));
    engine.end(&session).await.expect("ended");
}

#[tokio::test]
async fn downloads_are_listed_and_read() {
    let grid = Grid::start(1).await;
    let engine = engine(config(&grid.url));
    let session = started(&engine, 1).await;
    assert_eq!(engine.downloads(&session).await.expect("none yet"), []);
    let page = "data:text/html,<a download=hallo.txt href='data:text/plain,inhalt'>x</a>\
        <script>document.querySelector('a').click()</script>";
    command(&engine, &session, "url", &json!({ "url": page })).await;
    sleep(Duration::from_secs(2)).await;
    let files = engine.downloads(&session).await.expect("one");
    assert_eq!((files[0].name.as_str(), files[0].bytes), ("hallo.txt", Some(6)));
    let modified = UNIX_EPOCH + Duration::from_millis(files[0].modified_at_ms.expect("a time"));
    assert!(modified.elapsed().expect("in the past") < Duration::from_secs(600), "{modified:?}");
    assert_eq!(engine.download(&session, "hallo.txt", 100).await.expect("read"), "inhalt");
    assert!(matches!(engine.download(&session, "hallo.txt", 5).await, Err(GridError::Nonsense { .. })));
    for missing in ["missing.txt", "../hallo.txt", ".."] {
        let error = engine.download(&session, missing, 100).await.expect_err("no such file");
        assert!(matches!(error, GridError::Refused { .. }), "{missing}: {error}");
    }
    engine.end(&session).await.expect("ended");
}

#[tokio::test]
async fn a_cdp_socket_is_ready_once_and_only_while_the_server_holds_it_open() {
    let grid = Grid::start(1).await;
    let engine = engine(config(&grid.url));
    let session = started(&engine, 1).await;
    assert!(engine.take_ready_socket(&session).await.is_none(), "nothing is opened without a reason");
    engine.prepare_socket(&session).await;
    let stream = engine.take_ready_socket(&session).await.expect("ready");
    assert!(engine.take_ready_socket(&session).await.is_none(), "each client has its own");
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let call = Message::text(json!({ "id": 7, "method": "Browser.getVersion" }).to_string());
    socket.send(call).await.expect("sent");
    let answer = socket.next().await.expect("an answer").expect("a message").into_text().expect("text");
    assert!(answer.contains("\"id\":7") && answer.contains("\"product\""), "{answer}");

    engine.prepare_socket(&session).await;
    drop(grid);
    sleep(Duration::from_secs(1)).await;
    assert!(engine.take_ready_socket(&session).await.is_none(), "the server has closed it");
}

/// Sends a command of classic WebDriver as a relay does.
async fn command(
    engine: &casement_webdriver::WebDriverEngine,
    session: &casement_webdriver::RemoteSession,
    name: &str,
    body: &serde_json::Value,
) {
    let (mut stream, endpoint) = engine.connect(session, Channel::Http).await.expect("connected");
    let body = body.to_string();
    let head = format!(
        "POST {}/session/{}/{name} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        endpoint.path,
        session.id(),
        endpoint.host,
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.expect("answered");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn the_session_of_a_killed_node_is_lost_and_the_other_is_not() {
    let mut grid = Grid::start(2).await;
    let engine = engine(config(&grid.url));
    let sessions = [started(&engine, 1).await, started(&engine, 2).await];
    let mut watch = Watch::of(&engine);
    assert_eq!(watch.next(Duration::from_millis(500)).await, None);
    grid.kill_node(0);
    let lost = watch.next(TEST_TIMEOUT).await.expect("lost");
    assert!(lost.reason.contains("does not reach the session's node"), "{}", lost.reason);
    let (gone, alive) = if lost.browser == browser(1) { (0, 1) } else { (1, 0) };
    assert_eq!(watch.next(Duration::from_secs(12)).await, None);
    assert_eq!(engine.is_active(&sessions[alive]).await, Ok(true));
    engine.end(&sessions[gone]).await.expect("the task that cleans up ends it");
    engine.end(&sessions[alive]).await.expect("ended");
}

#[tokio::test]
async fn a_hub_that_restarts_without_the_session_has_lost_it() {
    let mut grid = Grid::start(1).await;
    let engine = engine(config(&grid.url));
    let session = started(&engine, 1).await;
    let mut watch = Watch::of(&engine);
    grid.kill_hub();
    assert_eq!(watch.next(Duration::from_secs(10)).await, None, "the Grid is away");
    grid.restart_hub(0).await;
    let lost = watch.next(TEST_TIMEOUT).await.expect("lost");
    assert_eq!(lost.browser, browser(1));
    engine.end(&session).await.expect("ended");
}
