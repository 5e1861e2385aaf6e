//! The cookies and the local storage of the browser: `/v1/browser_state/…`.
//!
//! Everything goes through one connection to the browser's debugging protocol, so that it works for a browser whose user
//! data directory is out of reach. No site receives a request, because its documents are made here; Chromium may open a
//! connection to it in advance.

mod cookies;
mod origins;
mod pages;
mod storage;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex as SyncMutex;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use self::origins::normalized;
use self::pages::{Document, Page, Pages};
use self::storage::Items;
use crate::browser_handle::BrowserHandle;
use crate::cdp::CdpError;
use crate::reply::{Answer, Refusal, ok, read, read_within};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::browser_state::{
    BrowserState, MAX_COOKIES, MAX_ORIGINS, MAX_STATE_BYTES, OriginStorage, READ, ReadState, StateReading,
    StateWritten, WRITE,
};

/// The timeout of an operation.
const WORK_TIMEOUT: Duration = Duration::from_secs(170);
/// The maximum number of origins at a time. Each needs a page with a process, and a written one two.
const MAX_VISITS: usize = 4;
/// The timeout for a written storage to reach the browser, and the interval of the checks.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time for which a storage that a page has written may be on the way when it is read.
const UNDERWAY_TIMEOUT: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The state of the session's browser.
#[derive(Debug)]
pub(crate) struct BrowserStates {
    browser: BrowserHandle,
    /// Held while the state is read or written.
    turn: Arc<Mutex<()>>,
}

impl BrowserStates {
    pub(crate) fn new(browser: BrowserHandle) -> Self {
        Self { browser, turn: Arc::default() }
    }

    /// Serves `/v1/browser_state/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            READ => {
                let request: ReadState = read(body).await?;
                if request.origins.len() > MAX_ORIGINS {
                    let message = format_args!("at most {MAX_ORIGINS}");
                    return Err(Refusal::new(ErrorCode::OutOfRange, message).of_field("origins"));
                }
                ok(&self.run(move |pages| async move { read_state(&pages, &request).await }).await?)
            }
            WRITE => {
                let state: BrowserState = read_within(body, MAX_STATE_BYTES).await?;
                if let Some(limit) = state.exceeded_limit() {
                    return Err(Refusal::new(ErrorCode::TooLarge, limit));
                }
                ok(&self.run(move |pages| async move { write_state(&pages, state).await }).await?)
            }
            other => Err(Refusal::no_operation(other)),
        }
    }

    /// Runs `work`, also if the caller goes away, so that no page stays open.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Pages>) -> F + Send + 'static) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        self.browser.usable()?;
        let endpoint = self.browser.endpoint();
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let run = tokio::spawn(async move {
            let _turn = turn;
            let pages = Arc::new(Pages::connect(&endpoint).await?);
            let late = || Refusal::new(ErrorCode::TimedOut, format_args!("not done in {} s", WORK_TIMEOUT.as_secs()));
            let result = timeout(WORK_TIMEOUT, work(Arc::clone(&pages))).await.unwrap_or_else(|_| Err(late()));
            pages.close_all().await;
            result
        });
        run.await.map_err(|error| Refusal::new(ErrorCode::Internal, error))?
    }
}

async fn read_state(pages: &Pages, request: &ReadState) -> Result<StateReading, Refusal> {
    let (cookies, cookies_left_out) = cookies::read(&pages.cdp).await?;
    let too_large = || Refusal::new(ErrorCode::TooLarge, "the browser has more cookies than a state can hold");
    if cookies.len() > MAX_COOKIES {
        return Err(too_large());
    }
    let requested: HashSet<String> = request.origins.iter().filter_map(|origin| normalized(origin)).collect();
    let listed = origins::listed(pages).await;
    let origins_listed = listed.is_ok();
    let candidates: Vec<String> = match listed {
        // What was stored in the last seconds is not counted yet.
        Ok(listed) => listed.into_iter().chain(origins::likely(&pages.cdp, &[]).await?).collect(),
        Err(error @ (CdpError::Closed | CdpError::Connect(_))) => return Err(error.into()),
        Err(error) => {
            tracing::debug!(%error, "the browser does not list the origins that store something");
            origins::likely(&pages.cdp, &cookies).await?
        }
    };
    let mut reading = StateReading { origins_listed, cookies_left_out, ..StateReading::default() };
    let mut left = MAX_STATE_BYTES.checked_sub(json_bytes(&cookies)).ok_or_else(too_large)?;
    reading.state.cookies = cookies;
    let mut all: Vec<String> = requested.iter().cloned().collect();
    let mut seen = requested.clone();
    all.extend(candidates.into_iter().filter(|origin| seen.insert(origin.clone())));
    let beyond = all.split_off(all.len().min(MAX_ORIGINS)).len();
    reading.origins_left_out = u32::try_from(beyond).unwrap_or(u32::MAX);
    all.sort_unstable();

    let present = origins::present(pages).await?;
    let visitor = Visitor { pages, present: &present, idle: SyncMutex::default() };
    let reads = stream::iter(all).map(|origin| visitor.read(origin)).buffered(MAX_VISITS);
    let mut reads = std::pin::pin!(reads);
    while let Some((origin, items)) = reads.next().await {
        match items? {
            Some(items) if items.is_empty() && !requested.contains(&origin) => {}
            Some(local_storage) => {
                let storage = OriginStorage { origin, local_storage };
                // With the comma between two origins.
                match left.checked_sub(json_bytes(&storage) + 1) {
                    Some(rest) => {
                        left = rest;
                        reading.state.origins.push(storage);
                    }
                    None => reading.origins_left_out += 1,
                }
            }
            None => reading.origins_left_out += 1,
        }
    }
    Ok(reading)
}

async fn write_state(pages: &Pages, state: BrowserState) -> Result<StateWritten, Refusal> {
    let cookies_refused = cookies::replace(&pages.cdp, &state.cookies).await?;
    let visitor = Visitor { pages, present: &[], idle: SyncMutex::default() };
    let mut seen = HashSet::new();
    let origins = state.origins.into_iter().map(|storage| {
        let origin = normalized(&storage.origin).filter(|origin| seen.insert(origin.clone()));
        (origin, storage.local_storage)
    });
    let writes = stream::iter(origins).map(|(origin, items)| visitor.write(origin, items)).buffer_unordered(MAX_VISITS);
    let mut writes = std::pin::pin!(writes);
    let mut written = StateWritten { cookies_refused, ..StateWritten::default() };
    while let Some(is_written) = writes.next().await {
        if !is_written? {
            written.origins_refused += 1;
        }
    }
    Ok(written)
}

/// Returns the number of bytes of a value's JSON.
fn json_bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

/// Visits origins in hidden pages, which are used again.
struct Visitor<'a> {
    pages: &'a Pages,
    /// The documents of the session's own pages, with their origins.
    present: &'a [(String, Document<'a>)],
    idle: SyncMutex<Vec<Page>>,
}

impl Visitor<'_> {
    /// Returns the storage of an origin; `None` if it cannot be read.
    async fn read(&self, origin: String) -> (String, Result<Option<Items>, CdpError>) {
        let read = async |document: &Document<'_>| {
            self.wait_until_seen(document, &origin).await?;
            storage::read(document, &origin).await
        };
        let items = self.visit(&origin, read).await;
        (origin, items.map(Option::flatten))
    }

    /// Waits until `document` sees what the session's own pages of its origin have stored. What a page has just written is
    /// on the way from its process for a moment.
    async fn wait_until_seen(&self, document: &Document<'_>, origin: &str) -> Result<(), CdpError> {
        let deadline = Instant::now() + UNDERWAY_TIMEOUT;
        for (_, own) in self.present.iter().filter(|(of, _)| of == origin) {
            loop {
                // A page that is gone or blocked has nothing to wait for, and one that writes all the time is never done.
                match timeout_at(deadline, storage::fingerprint(own, origin)).await {
                    Ok(Ok(stored)) if stored.is_string() && storage::fingerprint(document, origin).await? != stored => {
                    }
                    _ => break,
                }
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Replaces the storage of an origin. Returns false if it is not written.
    async fn write(&self, origin: Option<String>, items: Items) -> Result<bool, CdpError> {
        let Some(origin) = origin else { return Ok(false) };
        let written = self.visit(&origin, async |document| {
            let is_written = storage::replace(document, &origin, &items).await?;
            let wanted = storage::fingerprint(document, &origin).await?;
            self.wait_until_stored(&origin, &wanted).await?;
            Ok(is_written)
        });
        Ok(written.await?.unwrap_or(false))
    }

    /// Waits until another page sees the written storage. Until then it may be on the way from the process of the page
    /// that has written it, which ends when the page shows something else.
    async fn wait_until_stored(&self, origin: &str, wanted: &Value) -> Result<(), CdpError> {
        let stored = self.visit(origin, async |document| {
            let deadline = Instant::now() + ARRIVAL_TIMEOUT;
            while storage::fingerprint(document, origin).await? != *wanted {
                if Instant::now() >= deadline {
                    return Err(CdpError::Timeout { method: "localStorage.setItem", after: ARRIVAL_TIMEOUT });
                }
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            Ok(())
        });
        let late = CdpError::Timeout { method: "localStorage.getItem", after: ARRIVAL_TIMEOUT };
        Box::pin(stored).await?.ok_or(late)
    }

    /// Runs `work` in a document of the origin. Returns `None` if the origin cannot be opened or does not answer.
    async fn visit<T>(
        &self,
        origin: &str,
        work: impl AsyncFnOnce(&Document<'_>) -> Result<T, CdpError>,
    ) -> Result<Option<T>, CdpError> {
        let idle = self.idle.lock().pop();
        let page = match idle {
            Some(page) => page,
            None => self.pages.open_hidden().await?,
        };
        let worked = match self.pages.show(&page, origin).await {
            Ok(document) => work(&document).await,
            Err(error) => Err(error),
        };
        match worked {
            Ok(value) => {
                self.idle.lock().push(page);
                Ok(Some(value))
            }
            Err(error @ (CdpError::Closed | CdpError::Connect(_))) => Err(error),
            // The page may hang, or its process may have ended.
            Err(error) => {
                tracing::debug!(origin, %error, "the storage of an origin cannot be reached");
                self.pages.close(&page).await;
                Ok(None)
            }
        }
    }
}
