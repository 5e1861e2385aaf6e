//! A client of the debugging protocol over a dialled socket.

use casement_agent_protocol::client::dial;
use casement_agent_protocol::{Channel, Status};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::sandbox::Sandbox;

/// The start URL of a browser whose first page is changed by a test: an empty page.
pub(crate) const EMPTY: &str = "http://localhost/empty";

/// A client whose failed calls panic.
pub(crate) struct Cdp(casement_test_support::cdp::Cdp);

impl Cdp {
    pub(crate) async fn dial(sandbox: &Sandbox, status: &Status) -> Self {
        let stream = TcpStream::from_std(dial(sandbox.socket("dial"), Channel::Cdp).await.unwrap()).unwrap();
        Self(casement_test_support::cdp::Cdp::handshake(stream, &status.browser_ws_path).await.unwrap())
    }

    /// Attaches to the first page of a browser that starts at [`EMPTY`], once the page is drawn. Without a start URL, a
    /// browser may be ready before its first page loads its blank document, which discards earlier changes.
    pub(crate) async fn at_first_page(sandbox: &Sandbox, status: &Status) -> (Self, String) {
        let mut cdp = Self::dial(sandbox, status).await;
        let target = cdp.pages().await.remove(0);
        let page = cdp.attach(&target).await;
        cdp.until(&page, "location.href + document.readyState", &json!(format!("{EMPTY}complete"))).await;
        cdp.drawn(&page).await;
        (cdp, page)
    }

    /// Waits until the current content of a page is drawn.
    pub(crate) async fn drawn(&mut self, session: &str) {
        let frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))";
        self.until(session, frames, &json!(1)).await;
    }

    pub(crate) async fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.0.call(session, method, &params).await.unwrap()
    }

    /// Returns the ids of the open pages.
    /// Crashes the renderer of a page, which answers no call.
    pub(crate) async fn crash(&mut self, session: &str) {
        self.0.send(Some(session), "Page.crash", &json!({})).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }

    pub(crate) async fn pages(&mut self) -> Vec<String> {
        self.0.pages().await.unwrap()
    }

    pub(crate) async fn attach(&mut self, target: &str) -> String {
        self.0.attach(target).await.unwrap()
    }

    /// Opens a page, in a new window or not, and returns a session to it. Changes to a page before it has reached its
    /// URL are lost, so this waits until then. The wait works for each URL except `about:blank`.
    pub(crate) async fn page(&mut self, url: &str, new_window: bool) -> String {
        assert_ne!(url, "about:blank", "it cannot be distinguished from a page's first document");
        let made = self.call(None, "Target.createTarget", json!({ "url": url, "newWindow": new_window })).await;
        let session = self.attach(made["targetId"].as_str().unwrap()).await;
        self.until(&session, "location.href !== 'about:blank'", &json!(true)).await;
        session
    }

    /// Returns the value of an expression, awaited if it is a promise.
    pub(crate) async fn evaluate(&mut self, session: &str, expression: &str) -> Value {
        self.0.evaluate(session, expression).await.unwrap()
    }

    /// Waits until an expression has this value.
    pub(crate) async fn until(&mut self, session: &str, expression: &str, wanted: &Value) {
        self.0.until(session, expression, wanted).await.unwrap();
    }
}
