//! The live view of a session with a display.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::{
    BrowserId,
    computer::{Action, ActionError, Button, Click, ClickKind, Computer, Computers, Move, Point, Press, Scroll},
    engine::ConfiguredEngines,
    live_view::{DialogAnswer, Frame, LiveDisplay, OpenDialogs},
    session::Activity,
    session_operation::{OperationError, SessionOperations},
    testing::{FixedClock, session},
};
use casement_http::live_view::WholeDisplay;
use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{WebSocketStream, accept_async, client_async, tungstenite::Message};

use super::support::{Server, eventually, soon};

type Socket = WebSocketStream<TcpStream>;

/// A display with the given frames, and computer control that records actions.
#[derive(Default)]
struct SessionAccess {
    frames: Mutex<VecDeque<Frame>>,
    requests: Mutex<Vec<Option<u64>>>,
    done: Mutex<Vec<Action>>,
    clipboard: Mutex<String>,
}

#[async_trait]
impl LiveDisplay for SessionAccess {
    async fn next_frame(&self, _: BrowserId, since: Option<u64>) -> Result<Option<Frame>, OperationError> {
        let next = self.frames.lock().pop_front();
        match next {
            Some(frame) => {
                self.requests.lock().push(since);
                Ok(Some(frame))
            }
            None => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok(None)
            }
        }
    }

    async fn next_dialogs(&self, _: BrowserId, _: Option<u64>) -> Result<OpenDialogs, OperationError> {
        unreachable!("a display shows dialogs itself")
    }

    async fn answer_dialog(&self, _: BrowserId, _: DialogAnswer) -> Result<(), OperationError> {
        unreachable!("a display shows dialogs itself")
    }
}

#[async_trait]
impl Computer for SessionAccess {
    async fn perform(&self, _: BrowserId, actions: Vec<Action>, _: Duration) -> Result<(), ActionError> {
        self.done.lock().extend(actions);
        Ok(())
    }

    async fn mouse(&self, _: BrowserId) -> Result<Point, OperationError> {
        Ok(Point { x: 0, y: 0 })
    }

    async fn write_clipboard(&self, _: BrowserId, text: String) -> Result<(), OperationError> {
        *self.clipboard.lock() = text;
        Ok(())
    }

    async fn read_clipboard(&self, _: BrowserId) -> Result<String, OperationError> {
        Ok(self.clipboard.lock().clone())
    }
}

impl SessionAccess {
    fn show(&self, state: u64) {
        let frame = Frame { state, width: 1000, height: 500, x: 16, y: 32, jpeg: Bytes::from_static(b"jpeg") };
        self.frames.lock().push_back(frame);
    }

    /// Waits until `count` actions were performed and returns all of them.
    async fn did(&self, count: usize) -> Vec<Action> {
        eventually("it is done", || self.done.lock().len() >= count).await;
        std::mem::take(&mut *self.done.lock())
    }
}

async fn viewer(access: &str) -> (Server, Arc<SessionAccess>, Socket, Socket) {
    let server = Server::start().await;
    let inside = Arc::new(SessionAccess::default());
    let activity = Activity::new(Arc::new(FixedClock::default()), Arc::new(FixedClock::default()));
    let operations = SessionOperations::new(activity, Arc::new(ConfiguredEngines::local()));
    let computers = Computers::new(inside.clone(), operations);
    let display = WholeDisplay { frames: inside.clone(), computers, session: session(1) };
    *server.shared.display.lock() = Some(display);
    let client = TcpStream::connect(server.address).await.unwrap();
    let url = format!("ws://casement.test/live/{access}");
    let browser = async { accept_async(server.upstream.accept().await.unwrap().0).await.unwrap() };
    let (client, browser) = soon(async { tokio::join!(client_async(url, client), browser) }).await;
    let mut client = client.unwrap().0;
    let Message::Text(hello) = soon(client.next()).await.unwrap().unwrap() else { panic!("no greeting") };
    assert_eq!(serde_json::from_str::<Value>(&hello).unwrap()["display"], true);
    (server, inside, client, browser)
}

async fn picture(client: &mut Socket) -> Vec<u8> {
    loop {
        if let Message::Binary(bytes) = soon(client.next()).await.unwrap().unwrap() {
            return bytes.to_vec();
        }
    }
}

async fn say(client: &mut Socket, value: Value) {
    client.send(Message::text(value.to_string())).await.unwrap();
}

/// Returns the next command with this method and responds with `result`.
async fn answered(browser: &mut Socket, method: &str, result: Value) -> Value {
    loop {
        let Message::Text(text) = soon(browser.next()).await.unwrap().unwrap() else { continue };
        let command: Value = serde_json::from_str(&text).unwrap();
        if command["method"] == method {
            browser.send(Message::text(json!({"id": command["id"], "result": result}).to_string())).await.unwrap();
            return command;
        }
    }
}

#[actix_web::test]
async fn a_slow_viewer_gets_fewer_frames_and_no_queue() {
    let (_server, inside, mut client, _browser) = viewer("view").await;
    for state in 1..=3 {
        inside.show(state);
    }
    let head = [1000_u16, 500, 16, 32].map(u16::to_be_bytes).concat();
    assert_eq!(picture(&mut client).await, [head.as_slice(), b"jpeg"].concat());
    picture(&mut client).await;
    // Two frames are in flight: the third is requested once the page has drawn one.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(*inside.requests.lock(), [None, Some(1)]);
    say(&mut client, json!({"t": "ack"})).await;
    picture(&mut client).await;
    assert_eq!(*inside.requests.lock(), [None, Some(1), Some(2)]);
}

#[actix_web::test]
async fn a_view_only_viewer_has_no_input() {
    let (_server, inside, mut client, _browser) = viewer("view").await;
    for input in [
        json!({"t": "mouse", "k": "down", "x": 0.5, "y": 0.5, "b": "left"}),
        json!({"t": "wheel", "x": 0.5, "y": 0.5, "dx": 0, "dy": 1000}),
        json!({"t": "key", "k": "down", "key": "a", "text": "a"}),
        json!({"t": "text", "s": "hello", "paste": true}),
        json!({"t": "drop", "x": 0.5, "y": 0.5, "paths": ["/etc/passwd"]}),
    ] {
        say(&mut client, input).await;
    }
    inside.show(1);
    say(&mut client, json!({"t": "ack"})).await;
    picture(&mut client).await;
    assert!(inside.done.lock().is_empty());
    assert_eq!(*inside.clipboard.lock(), "");
}

#[actix_web::test]
async fn an_interactive_viewer_uses_mouse_wheel_keys_and_clipboard_of_the_display() {
    let (_server, inside, mut client, _browser) = viewer("drive").await;
    inside.show(1);
    picture(&mut client).await;
    say(&mut client, json!({"t": "mouse", "k": "move", "x": 0.25, "y": 0.5})).await;
    say(&mut client, json!({"t": "mouse", "k": "down", "x": 9, "y": -1, "b": "right", "m": 8})).await;
    let done = inside.did(2).await;
    assert!(matches!(done[0], Action::Move(Move { to: Point { x: 250, y: 250 }, .. })), "{done:?}");
    let Action::Click(Click { at, button, kind, hold, .. }) = &done[1] else { panic!("{done:?}") };
    assert_eq!((*at, *button, *kind, hold.len()), (Point { x: 999, y: 0 }, Button::Right, ClickKind::Down, 1));

    for dy in [60, 60, -300] {
        say(&mut client, json!({"t": "wheel", "x": 0, "y": 0, "dx": 0, "dy": dy})).await;
    }
    let steps: Vec<_> = inside
        .did(2)
        .await
        .iter()
        .map(|action| match action {
            Action::Scroll(Scroll { down, .. }) => *down,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(steps, [1, -2], "what is less than a step counts with the next turn");

    say(&mut client, json!({"t": "key", "k": "down", "key": "ß", "text": "ß"})).await;
    say(&mut client, json!({"t": "key", "k": "up", "key": "ß"})).await;
    say(&mut client, json!({"t": "key", "k": "down", "key": "Control", "m": 2})).await;
    say(&mut client, json!({"t": "key", "k": "down", "key": "L", "m": 10})).await;
    say(&mut client, json!({"t": "key", "k": "down", "key": "ArrowLeft"})).await;
    say(&mut client, json!({"t": "key", "k": "down", "key": "NoSuchKey"})).await;
    let done = inside.did(6).await;
    let held = |at: usize| match &done[at] {
        Action::Key { key, down } => (key.value(), *down),
        other => panic!("{other:?} of {done:?}"),
    };
    assert_eq!([held(0), held(1), held(2)], [(0xdf, true), (0xdf, false), (0xffe3, true)]);
    let Action::Press(Press { chords, hold, .. }) = &done[3] else { panic!("{done:?}") };
    assert_eq!((chords[0].keys()[0].value(), hold.len()), (u32::from('l'), 1), "Shift is held for it alone");
    assert_eq!([held(4), held(5)], [(0xffe3, false), (0xff51, true)], "Control went up where nobody saw it");

    say(&mut client, json!({"t": "text", "s": "aus der\nAblage", "paste": true})).await;
    let done = inside.did(2).await;
    assert!(matches!((&done[0], &done[1]), (Action::Key { down: false, .. }, Action::Press(_))), "{done:?}");
    assert_eq!(*inside.clipboard.lock(), "aus der\nAblage");
}

#[actix_web::test]
async fn buttons_and_keys_that_a_viewer_holds_are_released_when_it_leaves() {
    let (_server, inside, mut client, _browser) = viewer("drive").await;
    say(&mut client, json!({"t": "mouse", "k": "down", "x": 0.5, "y": 0.5, "b": "left"})).await;
    say(&mut client, json!({"t": "key", "k": "down", "key": "ArrowUp", "code": "ArrowUp"})).await;
    inside.did(2).await;
    drop(client);
    let done = inside.did(2).await;
    assert!(matches!(done[0], Action::Key { down: false, .. }), "{done:?}");
    assert!(matches!(done[1], Action::Click(Click { kind: ClickKind::Up, button: Button::Left, .. })), "{done:?}");
}

#[actix_web::test]
async fn files_are_dropped_onto_the_page_at_the_position() {
    let (_server, inside, mut client, mut browser) = viewer("drive").await;
    inside.show(1);
    picture(&mut client).await;
    let discover = answered(&mut browser, "Target.setDiscoverTargets", json!({})).await;
    assert_eq!(discover["params"]["discover"], true);
    let info = json!({"targetId": "T", "type": "page", "title": "a", "url": "https://a.test/"});
    let created = json!({"method": "Target.targetCreated", "params": {"targetInfo": info}});
    browser.send(Message::text(created.to_string())).await.unwrap();
    answered(&mut browser, "Target.attachToTarget", json!({"sessionId": "S"})).await;
    // The tab is followed, but no frames of it are sent to the page.
    let cast = answered(&mut browser, "Page.startScreencast", json!({})).await;
    assert_eq!(cast["params"]["maxWidth"], 64);
    // A page can read dropped files, so only uploads are dropped.
    for path in ["relative", "/etc/passwd", "/home/casement/.config/x", "/home/casement/Uploads/../.config/x"] {
        let paths = json!(["/home/casement/Uploads/a b.txt", path]);
        say(&mut client, json!({"t": "drop", "x": 0.5, "y": 0.5, "paths": paths})).await;
    }
    say(&mut client, json!({"t": "drop", "x": 0.5, "y": 0.5, "paths": ["/home/casement/Uploads/a b.txt"]})).await;
    answered(&mut browser, "Runtime.evaluate", json!({"result": {"value": [0, 87]}})).await;
    for kind in ["dragEnter", "dragOver", "drop"] {
        let event = answered(&mut browser, "Input.dispatchDragEvent", json!({})).await["params"].clone();
        assert_eq!((&event["type"], &event["x"], &event["y"]), (&json!(kind), &json!(500.0), &json!(163.0)));
        assert_eq!(event["data"]["files"], json!(["/home/casement/Uploads/a b.txt"]));
    }
}
