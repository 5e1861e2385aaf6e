//! The live view with a simulated browser.

use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::{
    BrowserId,
    live_view::{DialogAnswer, Frame, LiveDisplay, OpenDialog, OpenDialogs},
    session_operation::OperationError,
    testing::browser_id,
};
use casement_http::{
    live_view::{self, PageDialogs},
    relay::CloseReason,
};
use futures_util::{SinkExt as _, StreamExt as _, stream};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::Notify};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async, tungstenite::Message};

use super::support::{Server, eventually, soon};

type Socket = WebSocketStream<TcpStream>;

async fn pair(server: &Server, access: &str) -> (Socket, Socket) {
    let client = TcpStream::connect(server.address).await.unwrap();
    let url = format!("ws://casement.test/live/{access}");
    let browser = async { accept_async(server.upstream.accept().await.unwrap().0).await.unwrap() };
    let (client, browser) = soon(async { tokio::join!(client_async(url, client), browser) }).await;
    (client.unwrap().0, browser)
}

async fn json_of(socket: &mut Socket) -> Value {
    loop {
        match soon(socket.next()).await.unwrap().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the next command except title requests, which a timer sends.
async fn next_command(browser: &mut Socket) -> Value {
    loop {
        let command = json_of(browser).await;
        if command["method"] != "Target.getTargets" {
            return command;
        }
    }
}

/// Returns the next command with this method and skips others.
async fn command(browser: &mut Socket, method: &str) -> Value {
    loop {
        let command = json_of(browser).await;
        if command["method"] == method {
            return command;
        }
    }
}

async fn send(socket: &mut Socket, value: Value) {
    socket.send(Message::text(value.to_string())).await.unwrap();
}

/// Simulates a browser with one tab until its screencast runs.
async fn cast(browser: &mut Socket) {
    let discover = command(browser, "Target.setDiscoverTargets").await;
    let info = json!({"targetId": "T", "type": "page", "title": "<script>x</script>", "url": "https://a.test/"});
    send(browser, json!({"method": "Target.targetCreated", "params": {"targetInfo": info}})).await;
    send(browser, json!({"id": discover["id"], "result": {}})).await;
    let attach = command(browser, "Target.attachToTarget").await;
    assert_eq!(attach["params"]["targetId"], "T");
    send(browser, json!({"id": attach["id"], "result": {"sessionId": "S"}})).await;
    assert_eq!(command(browser, "Page.startScreencast").await["sessionId"], "S");
}

async fn frame(browser: &mut Socket, number: u64) {
    let params = json!({"data": "/9j/", "sessionId": number, "metadata": {"deviceWidth": 800, "deviceHeight": 600}});
    send(browser, json!({"method": "Page.screencastFrame", "sessionId": "S", "params": params})).await;
}

async fn picture(client: &mut Socket) -> Vec<u8> {
    loop {
        if let Message::Binary(bytes) = soon(client.next()).await.unwrap().unwrap() {
            return bytes.to_vec();
        }
    }
}

#[actix_web::test]
async fn frames_pass_and_are_acknowledged_when_the_page_has_drawn_them() {
    let server = Server::start().await;
    let (mut client, mut browser) = pair(&server, "view").await;
    assert_eq!(json_of(&mut client).await, json!({"t": "hello", "input": false, "view_url": null, "display": false}));
    cast(&mut browser).await;
    frame(&mut browser, 1).await;
    assert_eq!(command(&mut browser, "Page.screencastFrameAck").await["params"]["sessionId"], 1);
    frame(&mut browser, 2).await;
    assert_eq!(picture(&mut client).await, [0xff, 0xd8, 0xff]);
    assert_eq!(picture(&mut client).await, [0xff, 0xd8, 0xff]);
    // The second frame waits for the page: the next command is caused by the page, and the acknowledgement follows it.
    send(&mut client, json!({"t": "size", "w": 100_000, "h": 0})).await;
    let next = next_command(&mut browser).await;
    assert_eq!(
        (&next["method"], &next["params"]["maxWidth"], &next["params"]["maxHeight"]),
        (&json!("Page.startScreencast"), &json!(1920), &json!(64))
    );
    send(&mut client, json!({"t": "ack"})).await;
    assert_eq!(command(&mut browser, "Page.screencastFrameAck").await["params"]["sessionId"], 2);
}

#[actix_web::test]
async fn a_view_only_viewer_cannot_interact() {
    let server = Server::start().await;
    let (mut client, mut browser) = pair(&server, "view").await;
    cast(&mut browser).await;
    for input in [
        json!({"t": "mouse", "k": "down", "x": 0.5, "y": 0.5, "b": "left"}),
        json!({"t": "wheel", "x": 0.5, "y": 0.5, "dx": 0, "dy": 10}),
        json!({"t": "key", "k": "down", "key": "a", "text": "a"}),
        json!({"t": "text", "s": "hello"}),
        json!({"t": "tab", "id": "T"}),
        json!({"t": "size", "w": 500, "h": 500}),
    ] {
        send(&mut client, input).await;
    }
    assert_eq!(next_command(&mut browser).await["method"], "Page.startScreencast", "only the last one was obeyed");
}

#[actix_web::test]
async fn an_interactive_viewer_moves_the_mouse_types_and_pastes() {
    let server = Server::start().await;
    let (mut client, mut browser) = pair(&server, "drive").await;
    cast(&mut browser).await;
    frame(&mut browser, 1).await;
    command(&mut browser, "Page.screencastFrameAck").await;
    send(
        &mut client,
        json!({"t": "mouse", "k": "down", "x": 0.5, "y": 7, "b": "left", "held": 255, "n": 200, "m": 255}),
    )
    .await;
    let mouse = next_command(&mut browser).await["params"].clone();
    let expected = json!({"type": "mousePressed", "x": 400.0, "y": 600.0, "button": "left", "buttons": 31, "clickCount": 3, "modifiers": 15});
    assert_eq!(mouse, expected);
    send(&mut client, json!({"t": "key", "k": "down", "key": "ä", "code": "Quote", "text": "ä", "vk": 222})).await;
    let key = next_command(&mut browser).await["params"].clone();
    assert_eq!((&key["type"], &key["text"], &key["code"]), (&json!("keyDown"), &json!("ä"), &json!("Quote")));
    send(&mut client, json!({"t": "key", "k": "down", "key": "a", "code": "KeyA", "vk": 65, "m": 2})).await;
    let shortcut = next_command(&mut browser).await["params"].clone();
    assert_eq!((&shortcut["type"], shortcut.get("text")), (&json!("rawKeyDown"), None));
    send(&mut client, json!({"t": "text", "s": "line\nline"})).await;
    assert_eq!(next_command(&mut browser).await["params"], json!({"text": "line\nline"}));
}

/// Returns the next list of tabs that is sent to the page.
async fn tabs(client: &mut Socket) -> Value {
    loop {
        let message = json_of(client).await;
        if message["t"] == "tabs" && message["tabs"] != json!([]) {
            return message["tabs"].clone();
        }
    }
}

#[actix_web::test]
async fn a_title_that_a_page_sets_later_is_requested_and_shown() {
    let server = Server::start().await;
    let (mut client, mut browser) = pair(&server, "view").await;
    cast(&mut browser).await;
    assert_eq!(tabs(&mut client).await[0]["title"], "<script>x</script>");
    let request = command(&mut browser, "Target.getTargets").await;
    let info = |id, title: &str| json!({"targetId": id, "type": "page", "title": title, "url": "https://a.test/"});
    // Only events add tabs to the list, so `U` is not listed.
    let infos = [info("T", &"<b>".repeat(100)), info("U", "unknown")];
    send(&mut browser, json!({"id": request["id"], "result": {"targetInfos": infos}})).await;
    loop {
        let tabs = tabs(&mut client).await;
        assert_eq!(tabs.as_array().unwrap().len(), 1);
        if tabs[0]["title"] != "<script>x</script>" {
            assert_eq!(tabs[0]["title"].as_str().unwrap().len(), 200, "cut, and as it is");
            break;
        }
    }
}

fn created(id: &str) -> Value {
    let info = json!({"targetId": id, "type": "page", "title": "", "url": "https://a.test/"});
    json!({"method": "Target.targetCreated", "params": {"targetInfo": info}})
}

#[actix_web::test]
async fn overlong_target_ids_are_not_stored() {
    let server = Server::start().await;
    let (mut client, mut browser) = pair(&server, "view").await;
    cast(&mut browser).await;
    send(&mut browser, created(&"x".repeat(65))).await;
    send(&mut browser, created("U")).await;
    let attach = command(&mut browser, "Target.attachToTarget").await;
    assert_eq!(attach["params"]["targetId"], "U");
    let listed = loop {
        let listed = tabs(&mut client).await;
        if listed.as_array().unwrap().len() > 1 {
            break listed;
        }
    };
    assert_eq!((listed[0]["id"].as_str(), listed[1]["id"].as_str(), listed.get(2)), (Some("T"), Some("U"), None));
    // The id is too long, so no command is sent to that session.
    send(&mut browser, json!({"id": attach["id"], "result": {"sessionId": "x".repeat(65)}})).await;
    send(&mut client, json!({"t": "size", "w": 500, "h": 500})).await;
    send(&mut browser, created("V")).await;
    assert_eq!(next_command(&mut browser).await["params"]["targetId"], "V");
}

#[actix_web::test]
async fn commands_to_an_unresponsive_browser_are_bounded() {
    let server = Server::start().await;
    let (mut client, browser) = pair(&server, "view").await;
    let (mut sink, mut messages) = browser.split();
    // Each tab opens after the command for the previous one, so every command is counted.
    let count = async {
        for number in 0..2000 {
            let gone =
                json!({"method": "Target.targetDestroyed", "params": {"targetId": format!("tab {}", number - 1)}});
            let events = [gone, created(&format!("tab {number}"))].map(|event| Ok(Message::text(event.to_string())));
            // Both are sent in one write; otherwise the second would wait for an acknowledgement of the first.
            if sink.send_all(&mut stream::iter(events)).await.is_err() {
                return number;
            }
            loop {
                match messages.next().await {
                    Some(Ok(message)) if message.to_text().is_ok_and(|text| text.contains("attachToTarget")) => break,
                    Some(Ok(_)) => {}
                    _ => return number,
                }
            }
        }
        2000
    };
    let end = async {
        loop {
            if let Message::Close(Some(close)) = soon(client.next()).await.unwrap().unwrap() {
                return close;
            }
        }
    };
    let (close, requests) = soon(async { tokio::join!(end, count) }).await;
    assert_eq!((u16::from(close.code), close.reason.as_str()), (4002, "crashed"));
    assert!((1000..=1024).contains(&requests), "{requests}");
}

#[actix_web::test]
async fn the_view_ends_with_the_sessions_reason() {
    let server = Server::start().await;
    let (mut client, _browser) = pair(&server, "drive").await;
    json_of(&mut client).await;
    server.shared.end.end(CloseReason::Released);
    let close = soon(client.next()).await.unwrap().unwrap();
    let Message::Close(Some(close)) = close else { panic!("{close:?}") };
    assert_eq!((u16::from(close.code), close.reason.as_str()), (4003, "released"));
    eventually("it is over", || server.open() == 0).await;
}

#[actix_web::test]
async fn a_viewer_that_disconnects_leaves_nothing_open() {
    let server = Server::start().await;
    let (client, mut browser) = pair(&server, "view").await;
    assert_eq!(server.open(), 1);
    drop(client);
    while soon(browser.next()).await.is_some_and(|message| message.is_ok()) {}
    eventually("it is over", || server.open() == 0).await;
}

#[test]
fn the_page_loads_nothing_from_other_origins_and_nothing_inline() {
    let page = live_view::page();
    let policy = page.headers().get("content-security-policy").unwrap().to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for name in ["live.js", "live.css"] {
        assert_eq!(live_view::asset(name).unwrap().headers().get("x-content-type-options").unwrap(), "nosniff");
    }
    assert!(live_view::asset("../mod.rs").is_none());
}

/// A page with one open dialog.
#[derive(Default)]
struct Asking {
    answers: Mutex<Vec<DialogAnswer>>,
    answered: Notify,
}

#[async_trait]
impl LiveDisplay for Asking {
    async fn next_frame(&self, _: BrowserId, _: Option<u64>) -> Result<Option<Frame>, OperationError> {
        unreachable!("there is no display")
    }

    async fn next_dialogs(&self, _: BrowserId, since: Option<u64>) -> Result<OpenDialogs, OperationError> {
        match since {
            None => {
                let (kind, message) = ("prompt".to_owned(), "<b>Name?</b>".to_owned());
                let open = OpenDialog { page: "T".to_owned(), kind, message, default_text: "nobody".to_owned() };
                Ok(OpenDialogs { state: 1, dialogs: vec![open] })
            }
            Some(1) => {
                self.answered.notified().await;
                Ok(OpenDialogs { state: 2, dialogs: Vec::new() })
            }
            Some(_) => std::future::pending().await,
        }
    }

    async fn answer_dialog(&self, _: BrowserId, answer: DialogAnswer) -> Result<(), OperationError> {
        self.answers.lock().push(answer);
        self.answered.notify_one();
        Ok(())
    }
}

/// Returns the dialogs of the next message to the page about them.
async fn dialogs(client: &mut Socket) -> Value {
    loop {
        if let Message::Text(text) = soon(client.next()).await.unwrap().unwrap() {
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["t"] == "dialogs" {
                return message["dialogs"].clone();
            }
        }
    }
}

#[actix_web::test]
async fn a_dialog_without_a_display_is_shown_to_viewers_and_answered_by_interactive_ones() {
    for (access, may) in [("drive", true), ("view", false)] {
        let server = Server::start().await;
        let asking = Arc::new(Asking::default());
        let way = PageDialogs { pages: asking.clone(), browser: browser_id(1) };
        *server.shared.dialogs.lock() = Some(way);
        let (mut client, _browser) = pair(&server, access).await;
        let shown = json!([{"page": "T", "kind": "prompt", "message": "<b>Name?</b>", "default": "nobody"}]);
        assert_eq!(dialogs(&mut client).await, shown);

        send(&mut client, json!({"t": "dialog", "page": "T", "accept": true, "text": "Zoë"})).await;
        if may {
            assert_eq!(dialogs(&mut client).await, json!([]));
            let answer = DialogAnswer { page: "T".to_owned(), accept: true, text: "Zoë".to_owned() };
            assert_eq!(*asking.answers.lock(), [answer]);
        } else {
            // A pong proves that earlier messages were handled.
            client.send(Message::Ping(b"x".as_slice().into())).await.unwrap();
            while !matches!(soon(client.next()).await.unwrap().unwrap(), Message::Pong(_)) {}
            assert_eq!(*asking.answers.lock(), []);
        }
    }
}
