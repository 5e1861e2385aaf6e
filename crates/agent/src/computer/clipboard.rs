//! The clipboard of the browser, with a display and without one alike.
//!
//! Only a focused page with a secure URL can use the clipboard. Therefore a hidden page, which no window and no client
//! shows, uses it: in a browser context of its own, at a URL that the agent serves, with emulated focus and the
//! permission. All pages of the session share its clipboard, and on a display it is the display's clipboard. Unicode
//! text is preserved.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cdp::{Cdp, CdpError, Endpoint, Notice, text};
use casement_agent_protocol::computer::MAX_CLIPBOARD_BYTES;

/// The page's URL. The agent serves all requests of the page, so that none is sent.
const ORIGIN: &str = "https://clipboard.invalid";
/// The proxy of the page. The browser connects before it sends a request, and nothing listens at this address.
const UNUSED_PROXY: &str = "http://127.0.0.1:1";
/// The timeout of one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of opening the hidden page, long enough for a busy machine: a visible one would take the focus.
const HIDDEN_PAGE_TIMEOUT: Duration = Duration::from_secs(6);
/// The interval at which the page is checked while it loads.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The reason why the clipboard could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClipboardError {
    #[error(transparent)]
    Browser(#[from] CdpError),
    #[error("the browser refused the clipboard: {0}")]
    Refused(String),
    #[error("the clipboard holds more than {MAX_CLIPBOARD_BYTES} bytes of text")]
    TooLong,
}

/// The page, which closes with its debugging connection.
#[derive(Debug)]
pub(super) struct Clipboard {
    cdp: Cdp,
    session: String,
}

impl Clipboard {
    /// Opens the page.
    ///
    /// A client of WebDriver BiDi makes every new page wait for its consent, and never gives it to a hidden one. In
    /// this case a visible page is opened.
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, ClipboardError> {
        match tokio::time::timeout(HIDDEN_PAGE_TIMEOUT, Self::open_page(endpoint, true)).await {
            Ok(opened) => opened,
            Err(_) => Self::open_page(endpoint, false).await,
        }
    }

    async fn open_page(endpoint: &Endpoint, hidden: bool) -> Result<Self, ClipboardError> {
        let (cdp, notices) = Cdp::connect_within(endpoint, STEP_TIMEOUT).await?;
        let context = json!({ "disposeOnDetach": true, "proxyServer": UNUSED_PROXY });
        let context = cdp.call(None, "Target.createBrowserContext", context, STEP_TIMEOUT).await?;
        let context = text(&context["browserContextId"]);
        let target = json!({ "url": "about:blank", "browserContextId": context, "hidden": hidden, "background": true });
        let target = cdp.call(None, "Target.createTarget", target, STEP_TIMEOUT).await?;
        let session = cdp.attach(text(&target["targetId"]), STEP_TIMEOUT).await?;
        let clipboard = Self { cdp, session };
        clipboard.call("Fetch.enable", json!({ "patterns": [{ "urlPattern": "*" }] })).await?;
        clipboard.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true })).await?;
        let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
        let grant = json!({ "origin": ORIGIN, "permissions": permissions, "browserContextId": context });
        clipboard.cdp.call(None, "Browser.grantPermissions", grant, STEP_TIMEOUT).await?;
        clipboard.load(notices).await?;
        Ok(clipboard)
    }

    /// Loads the page and serves its one request.
    async fn load(&self, mut notices: mpsc::Receiver<Notice>) -> Result<(), ClipboardError> {
        let request = async {
            while let Some(notice) = notices.recv().await {
                if notice.method == "Fetch.requestPaused" {
                    return Ok(notice.params["requestId"].clone());
                }
            }
            Err(CdpError::Closed)
        };
        let (opened, answered) = tokio::join!(self.call("Page.navigate", json!({ "url": ORIGIN })), async {
            let request = tokio::time::timeout(STEP_TIMEOUT, request)
                .await
                .map_err(|_| CdpError::Timeout { method: "Fetch.requestPaused", after: STEP_TIMEOUT })??;
            let answer = json!({
                "requestId": request, "responseCode": 200, "body": STANDARD.encode("<!doctype html>"),
                "responseHeaders": [{ "name": "content-type", "value": "text/html" }],
            });
            self.call("Fetch.fulfillRequest", answer).await
        });
        opened?;
        answered?;
        let is_loaded = format!("location.origin === '{ORIGIN}' && document.readyState === 'complete'");
        let loaded = async {
            while self.evaluate(&is_loaded).await? != Value::Bool(true) {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            Ok::<_, ClipboardError>(())
        };
        let late = |_| CdpError::Timeout { method: "Page.navigate", after: STEP_TIMEOUT };
        tokio::time::timeout(STEP_TIMEOUT, loaded).await.map_err(late)?
    }

    /// Returns true if the page is still open.
    pub(super) async fn is_open(&self) -> bool {
        self.evaluate("1").await.is_ok()
    }

    pub(super) async fn write(&self, text: &str) -> Result<(), ClipboardError> {
        // A JSON string is a JavaScript literal.
        self.evaluate(&format!("navigator.clipboard.writeText({})", Value::from(text))).await.map(drop)
    }

    pub(super) async fn read(&self) -> Result<String, ClipboardError> {
        let max = MAX_CLIPBOARD_BYTES;
        let read = format!("navigator.clipboard.readText().then(text => text.length > {max} ? null : text)");
        match self.evaluate(&read).await? {
            Value::String(text) if text.len() <= max => Ok(text),
            Value::String(_) | Value::Null => Err(ClipboardError::TooLong),
            other => Err(ClipboardError::Refused(format!("it is {other}"))),
        }
    }

    async fn call(&self, method: &'static str, params: Value) -> Result<Value, CdpError> {
        self.cdp.call(Some(&self.session), method, params, STEP_TIMEOUT).await
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
