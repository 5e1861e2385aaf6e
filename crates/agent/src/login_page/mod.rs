//! Login pages: opens, reads and fills them in.
//!
//! All scripts run in an isolated world, which the page can neither see nor change. A password is typed by a script in
//! the intended document after it has checked the origin, and never as key events, which would follow the focus to
//! another element.

mod act;
mod frames;
mod read;
mod settle;
mod tab;

use std::time::Duration;

use base64::Engine as _;
use futures_util::future::join_all;
use http::request::Parts;
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use self::act::ActionError;
use self::tab::{CALL_TIMEOUT, Tab};
use crate::browser_handle::BrowserHandle;
use crate::cdp::{CdpError, text};
use crate::reply::{self, Answer, Refusal, ok, read};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::login_page::{
    ACT, Act, ActRequest, Done, Fault, MAX_ACTS, MAX_TYPED, MAX_WAIT_MS, OPEN, OpenPage, PICTURE, READ, ReadPage,
    Reading,
};

/// The timeout of the navigation to a document.
const NAVIGATION_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a navigating page is read again, and the maximum number of retries.
const READ_BACKOFF: Duration = Duration::from_millis(30);
const MAX_ATTEMPTS: usize = 40;
/// The maximum time for a page that must differ to settle before its content is compared.
const COMPARE_INTERVAL: Duration = Duration::from_secs(3);
/// The timeout of a screenshot.
const SCREENSHOT_TIMEOUT: Duration = Duration::from_secs(30);

/// The tab of the login in progress, if there is one.
#[derive(Debug)]
pub(crate) struct LoginPage {
    browser: BrowserHandle,
    tab: Mutex<Option<Tab>>,
}

/// The exclusive access to the tab.
struct TabGuard<'a>(MutexGuard<'a, Option<Tab>>);

impl TabGuard<'_> {
    fn tab(&self) -> Result<&Tab, CdpError> {
        self.0.as_ref().ok_or(CdpError::Closed)
    }
}

fn done(result: Result<(), ActionError>) -> Result<Done, Refusal> {
    match result {
        Ok(()) => Ok(Done::default()),
        Err(ActionError::Page(fault)) => Ok(Done { fault: Some(fault) }),
        Err(ActionError::Browser(CdpError::Timeout { after, .. })) => {
            Ok(Done { fault: Some(Fault::Hangs { seconds: u32::try_from(after.as_secs()).unwrap_or(u32::MAX) }) })
        }
        Err(ActionError::Browser(error)) => Err(error.into()),
    }
}

impl LoginPage {
    pub(crate) fn new(browser: BrowserHandle) -> Self {
        Self { browser, tab: Mutex::default() }
    }

    /// Serves `/v1/login_page/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            OPEN => ok(&self.open(read(body).await?).await?),
            READ => ok(&self.read(read(body).await?).await?),
            ACT => ok(&self.act(read(body).await?).await?),
            PICTURE => Ok(reply::bytes("image/png", self.screenshot().await?)),
            other => Err(Refusal::no_operation(other)),
        }
    }

    /// Returns the tab. Attaches to the page in front if there is no tab, its page was closed, or `is_new` is true.
    async fn lock(&self, is_new: bool) -> Result<TabGuard<'_>, Refusal> {
        let running = self.browser.usable()?;
        let mut tab = self.tab.lock().await;
        if is_new || tab.as_ref().is_none_or(Tab::is_gone) {
            *tab = None;
            let target = running.browser.front_target().await?;
            *tab = Some(Tab::attach(&self.browser.endpoint(), &target).await?);
        }
        Ok(TabGuard(tab))
    }

    async fn open(&self, request: OpenPage) -> Result<Done, Refusal> {
        if !request.url.starts_with("http://") && !request.url.starts_with("https://") {
            return Err(Refusal::new(ErrorCode::NotAllowed, "must be an address of http or https").of_field("url"));
        }
        let guard = self.lock(true).await?;
        let tab = guard.tab()?;
        let page = tab.page()?;
        tab.begin_navigation();
        let navigate = json!({ "url": request.url });
        let reason = match tab.cdp.call(Some(&page.session), "Page.navigate", navigate, NAVIGATION_TIMEOUT).await {
            Ok(reply) => reply["errorText"].as_str().filter(|text| !text.is_empty()).map(str::to_owned),
            Err(CdpError::Timeout { .. }) => {
                drop(tab.cdp.send(Some(&page.session), "Page.stopLoading", json!({})).await);
                Some("net::ERR_TIMED_OUT".to_owned())
            }
            Err(CdpError::Refused { message, .. }) => Some(message),
            Err(error) => return Err(error.into()),
        };
        Ok(Done { fault: reason.map(|reason| Fault::Navigation { reason: reason.chars().take(200).collect() }) })
    }

    async fn read(&self, request: ReadPage) -> Result<Reading, Refusal> {
        let guard = self.lock(false).await?;
        let tab = guard.tab()?;
        let deadline = Instant::now() + Duration::from_millis(request.within_ms.min(MAX_WAIT_MS));
        loop {
            // A page that never settles is compared after `COMPARE_INTERVAL`.
            let settle_deadline = match request.differs_from {
                Some(_) => deadline.min(Instant::now() + COMPARE_INTERVAL),
                None => deadline,
            };
            let page = tab.page()?;
            let is_settled = match tab.settle(&page, settle_deadline).await {
                Err(CdpError::Refused { .. }) => false,
                settled => settled?,
            };
            let reading = read_retrying(tab, is_settled).await?;
            if request.differs_from.as_ref() != Some(&reading.mark) || Instant::now() >= deadline {
                return Ok(reading);
            }
            tab.wait_for_change(&page, deadline).await;
        }
    }

    async fn act(&self, request: ActRequest) -> Result<Done, Refusal> {
        if request.acts.len() > MAX_ACTS {
            return Err(Refusal::new(ErrorCode::OutOfRange, format_args!("at most {MAX_ACTS}")).of_field("acts"));
        }
        let is_too_long = |act: &Act| match act {
            Act::Fill { text, .. } => text.0.len() > MAX_TYPED,
            Act::FillCode { code, .. } => code.0.len() > MAX_TYPED,
            _ => false,
        };
        if request.acts.iter().any(is_too_long) {
            let message = format_args!("at most {MAX_TYPED} bytes");
            return Err(Refusal::new(ErrorCode::OutOfRange, message).of_field("text"));
        }
        let guard = self.lock(false).await?;
        done(guard.tab()?.act(request.acts).await)
    }

    async fn screenshot(&self) -> Result<Vec<u8>, Refusal> {
        let guard = self.lock(false).await?;
        let tab = guard.tab()?;
        let page = tab.page()?;
        let documents = tab.documents(&page, CALL_TIMEOUT).await?;
        // A failure is ignored: nothing was typed into a document that cannot veil its fields.
        join_all(documents.iter().map(|document| tab.ask(document, "veil", &[], CALL_TIMEOUT))).await;
        let params = json!({ "format": "png", "optimizeForSpeed": true });
        let session = Some(page.session.as_str());
        let captured = tab.cdp.call(session, "Page.captureScreenshot", params, SCREENSHOT_TIMEOUT).await;
        join_all(documents.iter().map(|document| tab.ask(document, "unveil", &[], CALL_TIMEOUT))).await;
        base64::engine::general_purpose::STANDARD
            .decode(text(&captured?["data"]))
            .map_err(|error| Refusal::new(ErrorCode::Internal, format_args!("the picture is not readable: {error}")))
    }
}

/// Reads the page, and retries while it is being replaced.
async fn read_retrying(tab: &Tab, is_settled: bool) -> Result<Reading, Refusal> {
    let mut attempts = 0;
    loop {
        let page = tab.page()?;
        match tab.read(&page, is_settled).await {
            Err(CdpError::Refused { .. }) if attempts < MAX_ATTEMPTS && !tab.is_gone() => {
                attempts += 1;
                tokio::time::sleep(READ_BACKOFF).await;
            }
            reading => return Ok(reading?),
        }
    }
}
