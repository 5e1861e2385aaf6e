//! Pages that show an empty document of any origin, without a request to it: the browser asks for the document, and the
//! agent answers in place of the site.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::cdp::{Cdp, CdpError, Endpoint, Notice, text};
use crate::own_page;

/// The timeout of a call, and of a script.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(20);
/// The world of the scripts, which extensions and other clients cannot change.
const WORLD: &str = "casement-storage";
/// The document, in base64: `<!doctype html><link rel=icon href=data:,>`. It names an icon, so that none is requested.
const DOCUMENT: &str = "PCFkb2N0eXBlIGh0bWw+PGxpbmsgcmVsPWljb24gaHJlZj1kYXRhOiw+";

/// An open page.
#[derive(Debug)]
pub(super) struct Page {
    target: String,
    pub(super) session: String,
}

/// A document of an origin, with a world for the agent's scripts.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pages: &'a Pages,
    session: Cow<'a, str>,
    context: Value,
}

/// A connection to the browser, with the pages that it has opened.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) cdp: Arc<Cdp>,
    /// The parameters of a hidden page.
    hidden: Value,
    /// The URL of the expected document of each session.
    expected: Arc<Mutex<HashMap<String, String>>>,
    /// The targets of the open pages.
    open: Mutex<Vec<String>>,
    _answers: AbortOnDropHandle<()>,
}

impl Pages {
    /// Connects to the browser.
    pub(super) async fn connect(endpoint: &Endpoint) -> Result<Self, CdpError> {
        let (cdp, notices) = Cdp::connect_within(endpoint, CALL_TIMEOUT).await?;
        let (cdp, expected) = (Arc::new(cdp), Arc::default());
        let answers = tokio::spawn(answer(Arc::downgrade(&cdp), Arc::clone(&expected), notices));
        let (hidden, answers) = (own_page::hidden(endpoint), AbortOnDropHandle::new(answers));
        Ok(Self { cdp, hidden, expected, open: Mutex::default(), _answers: answers })
    }

    /// Opens a page that is not visible, whose requests all come to the agent.
    pub(super) async fn open_hidden(&self) -> Result<Page, CdpError> {
        let page = self.open(self.hidden.clone()).await?;
        let session = Some(page.session.as_str());
        // The service worker of a site would answer before the agent.
        let network = json!({ "maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0 });
        self.cdp.call(session, "Network.enable", network, CALL_TIMEOUT).await?;
        self.cdp.call(session, "Network.setBypassServiceWorker", json!({ "bypass": true }), CALL_TIMEOUT).await?;
        let all = json!({ "patterns": [{ "urlPattern": "*" }] });
        self.cdp.call(session, "Fetch.enable", all, CALL_TIMEOUT).await?;
        Ok(page)
    }

    /// Opens an ordinary page in the background.
    pub(super) async fn open_tab(&self) -> Result<Page, CdpError> {
        self.open(own_page::visible()).await
    }

    async fn open(&self, parameters: Value) -> Result<Page, CdpError> {
        let created = self.cdp.call(None, "Target.createTarget", parameters, CALL_TIMEOUT).await?;
        let target = text(&created["targetId"]).to_owned();
        self.open.lock().push(target.clone());
        let session = self.cdp.attach(&target, CALL_TIMEOUT).await?;
        Ok(Page { target, session })
    }

    /// Closes a page.
    pub(super) async fn close(&self, page: &Page) {
        self.open.lock().retain(|target| *target != page.target);
        self.expected.lock().remove(&page.session);
        drop(self.cdp.send(None, "Target.closeTarget", json!({ "targetId": page.target })).await);
    }

    /// Closes all pages, and waits until they are closed.
    pub(super) async fn close_all(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        for target in open {
            // A page that cannot be closed is gone, or its browser is.
            drop(self.cdp.call(None, "Target.closeTarget", json!({ "targetId": target }), CALL_TIMEOUT).await);
        }
    }

    /// Shows the empty document of an origin in a hidden page.
    ///
    /// # Errors
    /// [`CdpError::Refused`] if the browser does not show it, as for an origin of `http` that it opens with `https` only.
    pub(super) async fn show<'a>(&'a self, page: &'a Page, origin: &str) -> Result<Document<'a>, CdpError> {
        let url = format!("{origin}/");
        self.expected.lock().insert(page.session.clone(), url.clone());
        let session = Some(page.session.as_str());
        let shown = self.cdp.call(session, "Page.navigate", json!({ "url": url }), CALL_TIMEOUT).await?;
        if let Some(error) = shown["errorText"].as_str().filter(|error| !error.is_empty()) {
            return Err(CdpError::Refused { method: "Page.navigate", message: error.to_owned() });
        }
        self.document((&*page.session).into(), &shown["frameId"]).await
    }

    /// Returns the present document of a page that others have opened.
    ///
    /// # Errors
    /// If the page does not answer.
    pub(super) async fn present(&self, target: &str) -> Result<Document<'_>, CdpError> {
        let session = self.cdp.attach(target, CALL_TIMEOUT).await?;
        let tree = self.cdp.call(Some(&session), "Page.getFrameTree", json!({}), CALL_TIMEOUT).await?;
        self.document(session.into(), &tree["frameTree"]["frame"]["id"]).await
    }

    async fn document<'a>(&'a self, session: Cow<'a, str>, frame: &Value) -> Result<Document<'a>, CdpError> {
        let world = json!({ "frameId": frame, "worldName": WORLD });
        let mut world = self.cdp.call(Some(&session), "Page.createIsolatedWorld", world, CALL_TIMEOUT).await?;
        Ok(Document { pages: self, session, context: world["executionContextId"].take() })
    }
}

impl Document<'_> {
    /// Runs a script and returns its value.
    pub(super) async fn run(&self, script: &str) -> Result<Value, CdpError> {
        let script = json!({ "expression": script, "contextId": self.context, "returnByValue": true });
        let session = Some(&*self.session);
        let mut reply = self.pages.cdp.call(session, "Runtime.evaluate", script, SCRIPT_TIMEOUT).await?;
        if reply["exceptionDetails"].is_object() {
            // The text of the exception may contain what is stored.
            return Err(CdpError::Refused { method: "Runtime.evaluate", message: "the script failed".to_owned() });
        }
        Ok(reply["result"]["value"].take())
    }
}

/// Answers the requests for the expected documents, and refuses all others.
async fn answer(cdp: Weak<Cdp>, expected: Arc<Mutex<HashMap<String, String>>>, mut notices: mpsc::Receiver<Notice>) {
    while let Some(notice) = notices.recv().await {
        let Some(cdp) = cdp.upgrade() else { return };
        let (Some(session), "Fetch.requestPaused") = (&notice.session, notice.method.as_str()) else { continue };
        let request = &notice.params;
        let is_expected = expected.lock().get(session).is_some_and(|url| request["request"]["url"] == **url);
        let sent = if is_expected && request["resourceType"] == "Document" {
            let headers = json!([
                { "name": "content-type", "value": "text/html" }, { "name": "cache-control", "value": "no-store" },
            ]);
            let document = json!({
                "requestId": request["requestId"], "responseCode": 200, "responseHeaders": headers, "body": DOCUMENT,
            });
            cdp.send(Some(session), "Fetch.fulfillRequest", document).await
        } else {
            let refusal = json!({ "requestId": request["requestId"], "errorReason": "BlockedByClient" });
            cdp.send(Some(session), "Fetch.failRequest", refusal).await
        };
        if sent.is_err() {
            return;
        }
    }
}
