//! The page on which somebody logs in: opened, read and filled in.
//!
//! Everything is asked of the page from a world of its own, which the page neither sees nor can change. A password is typed by the
//! document that it is meant for, after that document has looked at its own origin, and never as single keys, which would go wherever
//! the focus has been moved meanwhile.

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
use self::tab::{CALL, Tab};
use crate::cdp::CdpError;
use crate::reply::{self, Answer, Refusal, ok, read};
use crate::state::AgentState;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::login_page::{
    ACT, Act, ActRequest, Done, Fault, MAX_ACTS, MAX_TYPED, MAX_WAIT_MS, OPEN, OpenPage, PICTURE, READ, ReadPage,
    Reading,
};

/// How long a document may take to begin.
const BEGINS: Duration = Duration::from_secs(30);
/// How long a page that navigates may have nothing to read.
const BETWEEN: Duration = Duration::from_millis(30);
const MAX_ATTEMPTS: usize = 40;
/// A page that is not opened by us is given so long to come to rest before what it shows is compared.
const DIFFERS: Duration = Duration::from_secs(3);
/// Deadline of a picture.
const PICTURED: Duration = Duration::from_secs(30);

/// The tab of the session in which somebody logs in, if one does.
#[derive(Debug, Default)]
pub(crate) struct LoginPage {
    tab: Mutex<Option<Tab>>,
}

/// Answers one request.
pub(crate) async fn serve(core: &AgentState, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        OPEN => ok(&open(core, read(body).await?).await?),
        READ => ok(&read_page(core, read(body).await?).await?),
        ACT => ok(&act(core, read(body).await?).await?),
        PICTURE => Ok(reply::bytes("image/png", picture(core).await?)),
        other => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {other}"))),
    }
}

/// One caller at a time.
struct ReaderLock<'a>(MutexGuard<'a, Option<Tab>>);

impl ReaderLock<'_> {
    fn tab(&self) -> Result<&Tab, Refusal> {
        self.0.as_ref().ok_or_else(|| refusal(CdpError::Closed))
    }
}

/// The tab; that of before as long as its page is there, unless it is to be another one.
async fn held(core: &AgentState, anew: bool) -> Result<ReaderLock<'_>, Refusal> {
    let live = core.usable()?;
    let mut tab = core.login_page.tab.lock().await;
    if anew || tab.as_ref().is_none_or(Tab::gone) {
        *tab = None;
        let target = live.browser.front_target().await.map_err(refusal)?;
        let path = core.status().borrow().browser_ws_path.clone();
        *tab = Some(Tab::attach(core.config.debugging_port, &path, &target).await.map_err(refusal)?);
    }
    Ok(ReaderLock(tab))
}

fn refusal(error: CdpError) -> Refusal {
    let code = match error {
        CdpError::Timeout { .. } | CdpError::Closed | CdpError::Connect(_) => ErrorCode::BrowserHung,
        CdpError::Dialog(_) => ErrorCode::InvalidState,
        CdpError::Refused { .. } => ErrorCode::Internal,
    };
    Refusal::new(code, error)
}

fn done(result: Result<(), ActionError>) -> Result<Done, Refusal> {
    match result {
        Ok(()) => Ok(Done::default()),
        Err(ActionError::Page(fault)) => Ok(Done { fault: Some(fault) }),
        Err(ActionError::Browser(CdpError::Timeout { after, .. })) => {
            Ok(Done { fault: Some(Fault::Hangs { seconds: u32::try_from(after.as_secs()).unwrap_or(u32::MAX) }) })
        }
        Err(ActionError::Browser(error)) => Err(refusal(error)),
    }
}

async fn open(core: &AgentState, requested: OpenPage) -> Result<Done, Refusal> {
    if !requested.url.starts_with("http://") && !requested.url.starts_with("https://") {
        return Err(Refusal::new(ErrorCode::NotAllowed, "must be an address of http or https").of_field("url"));
    }
    let held = held(core, true).await?;
    let tab = held.tab()?;
    let page = tab.page().map_err(refusal)?;
    tab.will_open();
    let navigate = json!({ "url": requested.url });
    let reason = match tab.cdp.call(Some(&page.session), "Page.navigate", navigate, BEGINS).await {
        Ok(answer) => answer["errorText"].as_str().filter(|text| !text.is_empty()).map(str::to_owned),
        Err(CdpError::Timeout { .. }) => {
            drop(tab.cdp.report(Some(&page.session), "Page.stopLoading", json!({})).await);
            Some("net::ERR_TIMED_OUT".to_owned())
        }
        Err(CdpError::Refused { message, .. }) => Some(message),
        Err(error) => return Err(refusal(error)),
    };
    Ok(Done { fault: reason.map(|reason| Fault::Navigation { reason: reason.chars().take(200).collect() }) })
}

async fn read_page(core: &AgentState, requested: ReadPage) -> Result<Reading, Refusal> {
    let held = held(core, false).await?;
    let tab = held.tab()?;
    let until = Instant::now() + Duration::from_millis(requested.within_ms.min(MAX_WAIT_MS));
    loop {
        // One that never rests is compared from time to time all the same.
        let rest = if requested.differs_from.is_some() { until.min(Instant::now() + DIFFERS) } else { until };
        let page = tab.page().map_err(refusal)?;
        let settled = match tab.settle(&page, rest).await {
            Err(CdpError::Refused { .. }) | Ok(false) => false,
            Ok(true) => true,
            Err(error) => return Err(refusal(error)),
        };
        let reading = look(tab, settled).await?;
        if requested.differs_from.as_ref() != Some(&reading.mark) || Instant::now() >= until {
            return Ok(reading);
        }
        tab.happens(&page, until).await;
    }
}

/// What the page shows; one that is being replaced is asked again.
async fn look(tab: &Tab, settled: bool) -> Result<Reading, Refusal> {
    let mut tries = 0;
    loop {
        let page = tab.page().map_err(refusal)?;
        match tab.look(&page, settled).await {
            Err(CdpError::Refused { .. }) if tries < MAX_ATTEMPTS && !tab.gone() => {
                tries += 1;
                tokio::time::sleep(BETWEEN).await;
            }
            other => return other.map_err(refusal),
        }
    }
}

async fn act(core: &AgentState, requested: ActRequest) -> Result<Done, Refusal> {
    if requested.acts.len() > MAX_ACTS {
        return Err(Refusal::new(ErrorCode::OutOfRange, format_args!("at most {MAX_ACTS}")).of_field("acts"));
    }
    let long = |act: &Act| match act {
        Act::Fill { text, .. } => text.0.len() > MAX_TYPED,
        Act::FillCode { code, .. } => code.0.len() > MAX_TYPED,
        _ => false,
    };
    if requested.acts.iter().any(long) {
        return Err(Refusal::new(ErrorCode::OutOfRange, format_args!("at most {MAX_TYPED} bytes")).of_field("text"));
    }
    let held = held(core, false).await?;
    done(held.tab()?.act(requested.acts).await)
}

async fn picture(core: &AgentState) -> Result<Vec<u8>, Refusal> {
    let held = held(core, false).await?;
    let tab = held.tab()?;
    let page = tab.page().map_err(refusal)?;
    let documents = tab.documents(&page, CALL).await.map_err(refusal)?;
    // Only what was veiled is shown: a document that does not do it is one that nothing was typed into.
    join_all(documents.iter().map(|document| tab.ask(document, "veil", &[], CALL))).await;
    let requested = json!({ "format": "png", "optimizeForSpeed": true });
    let taken = tab.cdp.call(Some(&page.session), "Page.captureScreenshot", requested, PICTURED).await;
    join_all(documents.iter().map(|document| tab.ask(document, "unveil", &[], CALL))).await;
    let encoded = taken.map_err(refusal)?;
    let encoded = encoded["data"].as_str().unwrap_or_default();
    base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .map_err(|error| Refusal::new(ErrorCode::Internal, format_args!("the picture is not readable: {error}")))
}
