//! The clipboard of the browser, with a display and without one alike.
//!
//! Pages reach the clipboard only from a secure address and with the focus. So there is a page for it of its own, which no window
//! shows and no client sees among its pages: in a context of its own, at an address that we answer, focused as far as it knows and
//! with the permission. What it reads and writes is what every page of the session reads, writes, copies and pastes; on a display it is
//! the display's clipboard. All of Unicode comes back as it went.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cdp::{Cdp, CdpError, Notice};
use casement_agent_protocol::computer::MAX_CLIPBOARD_BYTES;

/// The page's address. Nothing leaves for it: every request of the page is answered here.
const ORIGIN: &str = "https://clipboard.invalid";
/// The browser connects to an address before it asks for it: nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:1";
/// How long one step may take.
const STEP: Duration = Duration::from_secs(10);
/// How long the hidden page has to get to its address: long enough for a busy machine, since a page that could be seen takes the
/// keyboard of a display from the one in front.
const HIDDEN: Duration = Duration::from_secs(6);
/// Between two looks whether the page is there.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Why the clipboard could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClipboardError {
    #[error(transparent)]
    Browser(#[from] CdpError),
    #[error("the browser refused the clipboard: {0}")]
    Refused(String),
    #[error("the clipboard holds more than {MAX_CLIPBOARD_BYTES} bytes of text")]
    TooLong,
}

/// The page. It lives as long as its connection.
#[derive(Debug)]
pub(super) struct Clipboard {
    cdp: Cdp,
    session: String,
}

impl Clipboard {
    /// Opens the page, over a connection to the browser at `path` on `port`.
    ///
    /// A client of WebDriver BiDi makes every new page wait for its consent, and forgets to give it to those that no window shows.
    /// Then it takes one that could be seen.
    pub(super) async fn open(port: u16, path: &str) -> Result<Self, ClipboardError> {
        match tokio::time::timeout(HIDDEN, Self::open_page(port, path, true)).await {
            Ok(opened) => opened,
            Err(_) => Self::open_page(port, path, false).await,
        }
    }

    async fn open_page(port: u16, path: &str, hidden: bool) -> Result<Self, ClipboardError> {
        let connected = tokio::time::timeout(STEP, Cdp::connect(port, path)).await;
        let (cdp, notices) = connected.map_err(|_| CdpError::Timeout { method: "connect", after: STEP })??;
        let context = json!({ "disposeOnDetach": true, "proxyServer": NOWHERE });
        let context = call(&cdp, None, "Target.createBrowserContext", context).await?;
        let context = text(&context["browserContextId"]);
        let target = json!({ "url": "about:blank", "browserContextId": context, "hidden": hidden, "background": true });
        let target = text(&call(&cdp, None, "Target.createTarget", target).await?["targetId"]);
        let attach = json!({ "targetId": target, "flatten": true });
        let session = text(&call(&cdp, None, "Target.attachToTarget", attach).await?["sessionId"]);
        let clipboard = Self { cdp, session };
        clipboard.call("Fetch.enable", json!({ "patterns": [{ "urlPattern": "*" }] })).await?;
        clipboard.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true })).await?;
        let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
        let grant = json!({ "origin": ORIGIN, "permissions": permissions, "browserContextId": context });
        call(&clipboard.cdp, None, "Browser.grantPermissions", grant).await?;
        clipboard.go_there(notices).await?;
        Ok(clipboard)
    }

    /// Opens the address, and answers the one request that it takes.
    async fn go_there(&self, mut notices: mpsc::Receiver<Notice>) -> Result<(), ClipboardError> {
        let request = async {
            while let Some(notice) = notices.recv().await {
                if notice.method == "Fetch.requestPaused" {
                    return Ok(notice.params["requestId"].clone());
                }
            }
            Err(CdpError::Closed)
        };
        let (opened, answered) = tokio::join!(self.call("Page.navigate", json!({ "url": ORIGIN })), async {
            let request = tokio::time::timeout(STEP, request)
                .await
                .map_err(|_| CdpError::Timeout { method: "Fetch.requestPaused", after: STEP })??;
            let answer = json!({
                "requestId": request, "responseCode": 200, "body": STANDARD.encode("<!doctype html>"),
                "responseHeaders": [{ "name": "content-type", "value": "text/html" }],
            });
            self.call("Fetch.fulfillRequest", answer).await
        });
        opened?;
        answered?;
        let there = format!("location.origin === '{ORIGIN}' && document.readyState === 'complete'");
        let waiting = async {
            while self.evaluate(&there).await? != Value::Bool(true) {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            Ok::<_, ClipboardError>(())
        };
        let late = |_| CdpError::Timeout { method: "Page.navigate", after: STEP };
        tokio::time::timeout(STEP, waiting).await.map_err(late)?
    }

    /// Whether the browser still knows the page.
    pub(super) async fn is_there(&self) -> bool {
        self.evaluate("1").await.is_ok()
    }

    pub(super) async fn write(&self, text: &str) -> Result<(), ClipboardError> {
        // Every JSON text is one of the page's language, too.
        self.evaluate(&format!("navigator.clipboard.writeText({})", Value::from(text))).await.map(drop)
    }

    pub(super) async fn read(&self) -> Result<String, ClipboardError> {
        let most = MAX_CLIPBOARD_BYTES;
        let read = format!("navigator.clipboard.readText().then(text => text.length > {most} ? null : text)");
        match self.evaluate(&read).await? {
            Value::String(text) if text.len() <= most => Ok(text),
            Value::String(_) | Value::Null => Err(ClipboardError::TooLong),
            other => Err(ClipboardError::Refused(format!("it is {other}"))),
        }
    }

    async fn call(&self, method: &'static str, params: Value) -> Result<Value, CdpError> {
        call(&self.cdp, Some(&self.session), method, params).await
    }

    async fn evaluate(&self, expression: &str) -> Result<Value, ClipboardError> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", params).await?;
        if let Some(refusal) = answer["exceptionDetails"]["exception"]["description"].as_str() {
            return Err(ClipboardError::Refused(refusal.lines().next().unwrap_or_default().to_owned()));
        }
        Ok(answer["result"]["value"].take())
    }
}

async fn call(cdp: &Cdp, session: Option<&str>, method: &'static str, params: Value) -> Result<Value, CdpError> {
    cdp.call(session, method, params, STEP).await
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
