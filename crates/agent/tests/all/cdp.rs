//! A client of the debugging protocol over a dialled socket.

use casement_agent_protocol::client::dial;
use casement_agent_protocol::{Channel, Status};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::sandbox::Sandbox;

/// Where a browser begins whose first page is to be changed: a page that has nothing.
pub(crate) const EMPTY: &str = "http://localhost/empty";

pub(crate) struct Cdp {
    socket: WebSocketStream<TcpStream>,
    next: u64,
}

impl Cdp {
    pub(crate) async fn dial(sandbox: &Sandbox, status: &Status) -> Self {
        let tcp = dial(sandbox.socket("dial"), Channel::Cdp).await.unwrap();
        let tcp = TcpStream::from_std(tcp).unwrap();
        let url = format!("ws://127.0.0.1:9222{}", status.browser_ws_path);
        let (socket, _) = tokio_tungstenite::client_async(url, tcp).await.unwrap();
        Self { socket, next: 0 }
    }

    /// Attaches to the first page of a browser that begins at [`EMPTY`], once it is there and has been drawn. With no address
    /// given, a browser may be ready before its first page has come to its blank one, and all that was done to it is lost then.
    pub(crate) async fn at_first_page(sandbox: &Sandbox, status: &Status) -> (Self, String) {
        let mut cdp = Self::dial(sandbox, status).await;
        let target = cdp.pages().await.remove(0);
        let page = cdp.attach(&target).await;
        cdp.until(&page, "location.href + document.readyState", &json!(format!("{EMPTY}complete"))).await;
        cdp.drawn(&page).await;
        (cdp, page)
    }

    /// Waits until a page has been drawn as it is now.
    pub(crate) async fn drawn(&mut self, session: &str) {
        let frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))";
        self.until(session, frames, &json!(1)).await;
    }

    pub(crate) async fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        let mut answer = self.ask(session, method, params).await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// The whole answer, which may be an error.
    async fn ask(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(message.to_string())).await.unwrap();
        let answered = async {
            loop {
                let Some(Ok(Message::Text(text))) = self.socket.next().await else { panic!("the connection ended") };
                let answer: Value = serde_json::from_str(text.as_str()).unwrap();
                if answer["id"] == self.next {
                    return answer;
                }
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), answered)
            .await
            .unwrap_or_else(|_| panic!("no answer to {message}"))
    }

    /// The pages that are open.
    pub(crate) async fn pages(&mut self) -> Vec<String> {
        let answer = self.call(None, "Target.getTargets", json!({})).await;
        let infos = answer["targetInfos"].as_array().unwrap().clone();
        let pages = infos.iter().filter(|info| info["type"] == "page");
        pages.map(|info| info["targetId"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn attach(&mut self, target: &str) -> String {
        let answer = self.call(None, "Target.attachToTarget", json!({ "targetId": target, "flatten": true })).await;
        answer["sessionId"].as_str().unwrap().to_owned()
    }

    /// A new page, of a new window or not, and a session to it. What a page has before it comes to its address is thrown away with
    /// all that was done to it, so this waits until it is there, which shows with any address but the empty one.
    pub(crate) async fn page(&mut self, url: &str, new_window: bool) -> String {
        assert_ne!(url, "about:blank", "nobody can tell it from what a page has at first");
        let made = self.call(None, "Target.createTarget", json!({ "url": url, "newWindow": new_window })).await;
        let session = self.attach(made["targetId"].as_str().unwrap()).await;
        let there = json!({ "expression": "location.href !== 'about:blank'", "returnByValue": true });
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        // A question that meets the very change is an error.
        while self.ask(Some(&session), "Runtime.evaluate", there.clone()).await["result"]["result"]["value"] != true {
            assert!(std::time::Instant::now() < deadline, "{url} is not opened");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        session
    }

    /// The value of an expression, awaited if it is a promise.
    pub(crate) async fn evaluate(&mut self, session: &str, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call(Some(session), "Runtime.evaluate", params).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression has a value.
    pub(crate) async fn until(&mut self, session: &str, expression: &str, wanted: &Value) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        loop {
            // A question that meets a page on its way to another is an error, and what it looks at may not be there yet.
            let answer = self.ask(Some(session), "Runtime.evaluate", params.clone()).await;
            let told = answer["error"].is_null() && answer["result"]["exceptionDetails"].is_null();
            let value = &answer["result"]["result"]["value"];
            if told && value == wanted {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{expression} is not {wanted}: {answer}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}
