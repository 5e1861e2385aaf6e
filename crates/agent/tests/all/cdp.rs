//! A client of the debugging protocol over a dialled socket.

use casement_agent::client::dial;
use casement_agent::protocol::{Channel, Status};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::sandbox::Sandbox;

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

    pub(crate) async fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
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
                    assert!(answer["error"].is_null(), "{method}: {answer}");
                    return answer["result"].clone();
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

    /// A new page, of a new window or not, and a session to it.
    pub(crate) async fn page(&mut self, url: &str, new_window: bool) -> String {
        let made = self.call(None, "Target.createTarget", json!({ "url": url, "newWindow": new_window })).await;
        self.attach(made["targetId"].as_str().unwrap()).await
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
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let value = self.evaluate(session, expression).await;
            if value == *wanted {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{expression} is {value} instead of {wanted}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}
