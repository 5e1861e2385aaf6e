//! The `agent` socket: the session's operations over HTTP/1.1.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

use crate::cdp::CdpError;
use crate::computer;
use crate::display::DisplayError;
use crate::picture;
use crate::reply::{self, Answer, Body, Refusal, empty, json, read};
use crate::state::{AgentState, Listener, Live};
use crate::{curl, extension, fs, login_page, process, profile, replay, restart, script, session_log, telemetry, view};
use casement_agent_protocol::extension::RESTART;
use casement_agent_protocol::{
    DEFAULT_HANDOUT_MS, ErrorCode, Event, ExitReason, HEARTBEAT_SECONDS, Handout, MAX_SIDE, PROTOCOL_VERSION,
    READY_WAIT_SECONDS, Region, ScreenshotRequest, State, Status, VERSION_HEADER, Viewport,
};

/// Connections open at once.
const MAX_CONNECTIONS: usize = 256;
/// Longest deadline of a hand-out.
const MAX_HANDOUT_MS: u64 = 30_000;

/// Serves callers until the task is dropped.
pub(crate) async fn serve(listener: UnixListener, core: Arc<AgentState>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((caller, _)) => {
                let core = Arc::clone(&core);
                tokio::spawn(async move {
                    connection(caller, core).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the agent socket could not accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(caller: UnixStream, core: Arc<AgentState>) {
    let service = service_fn(move |request| {
        let core = Arc::clone(&core);
        async move { Ok::<_, Infallible>(handle(core, request).await) }
    });
    if let Err(error) =
        http1::Builder::new().max_buf_size(64 << 10).serve_connection(TokioIo::new(caller), service).await
    {
        tracing::debug!(%error, "a connection to the agent broke off");
    }
}

async fn handle(core: Arc<AgentState>, request: Request<Incoming>) -> Response<Body> {
    core.touch();
    let answer = route(&core, request).await;
    core.touch();
    answer.unwrap_or_else(Refusal::into_response)
}

async fn route(core: &Arc<AgentState>, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    if head.method == Method::GET && head.uri.path() == "/v1/status" {
        // Answered to every version: this is how a caller learns which one is spoken here.
        return Ok(json(StatusCode::OK, &*core.status().borrow()));
    }
    speaks_our_version(&head.headers)?;
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/v1/ready") => Ok(json(StatusCode::OK, &ready(core).await)),
        (&Method::GET, "/v1/events") => Ok(events(core)),
        (&Method::POST, "/v1/handout") => hand_out(core, read(body).await?).await,
        (&Method::POST, "/v1/screenshot") => screenshot(core, read(body).await?).await,
        (&Method::POST, "/v1/viewport") => viewport(core, read(body).await?).await,
        (&Method::POST, RESTART) => restart::serve(core, read(body).await?).await,
        (&Method::POST, "/v1/shutdown") => {
            core.stop.notify_one();
            Ok(empty())
        }
        _ => in_area(core, head, body).await,
    }
}

/// The operations of one area each: `/v1/<area>/<operation>`.
async fn in_area(core: &Arc<AgentState>, head: Parts, body: Incoming) -> Answer {
    let path = head.uri.path().to_owned();
    let (area, _operation) = path.strip_prefix("/v1/").and_then(|rest| rest.split_once('/')).unwrap_or_default();
    match area {
        "computer" => computer::serve(core, &head, body).await,
        "curl" => curl::serve(core, &head, body).await,
        "login_page" => login_page::serve(core, &head, body).await,
        "process" => process::serve(core, &head, body).await,
        "fs" => fs::serve(core, &head, body).await,
        "profile" => profile::serve(core, &head, body).await,
        "extension" => extension::serve(core, &head, body).await,
        "session_log" => session_log::serve(&head, body).await,
        "replay" => replay::serve(core, &head, body).await,
        "script" => script::serve(core, &head, body).await,
        "telemetry" => telemetry::serve(core, &head, body).await,
        "view" => view::serve(core, &head, body).await,
        _ => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {area}"))),
    }
}

fn speaks_our_version(headers: &http::HeaderMap) -> Result<(), Refusal> {
    let spoken = headers.get(VERSION_HEADER).map(|value| value.to_str().ok().and_then(|v| v.parse::<u32>().ok()));
    match spoken {
        None => Ok(()),
        Some(Some(version)) if version <= PROTOCOL_VERSION => Ok(()),
        Some(_) => {
            let message = format!("this agent speaks version {PROTOCOL_VERSION}");
            Err(Refusal::new(ErrorCode::UnsupportedVersion, message))
        }
    }
}

async fn ready(core: &AgentState) -> Status {
    let mut status = core.status();
    let settled = status.wait_for(|status| status.state != State::Starting);
    drop(tokio::time::timeout(Duration::from_secs(READY_WAIT_SECONDS), settled).await);
    let status = status.borrow().clone();
    if is_end(&status.state) {
        core.report();
    }
    status
}

async fn hand_out(core: &AgentState, requested: Handout) -> Answer {
    let live = live(core)?;
    let hung = |error: CdpError| Refusal::new(ErrorCode::BrowserHung, error);
    let within = Duration::from_millis(requested.timeout_ms.unwrap_or(DEFAULT_HANDOUT_MS).clamp(1, MAX_HANDOUT_MS));
    tokio::time::timeout(within, live.browser.prove(within))
        .await
        .map_err(|_| hung(CdpError::Timeout { method: "hand-out", after: within }))?
        .map_err(hung)?;
    if let Some(seconds) = requested.idle_end_seconds {
        core.end_when_idle_for(seconds);
    }
    if let Some(url) = requested.start_url {
        live.browser.open(&url).await.map_err(hung)?;
    }
    Ok(empty())
}

async fn screenshot(core: &AgentState, requested: ScreenshotRequest) -> Answer {
    let live = live(core)?;
    let whole = core.viewport();
    let region = requested.region.unwrap_or(Region { x: 0, y: 0, width: whole.width, height: whole.height });
    inside(region, whole)?;
    let _place = core.pictures.acquire().await;
    let began = Instant::now();
    let png = match &live.display {
        Some(display) => display.capture(region).await.map_err(display_refusal)?,
        None => live.browser.capture(region).await.map_err(browser_refusal)?,
    };
    if picture::size(&png) != Some((region.width, region.height)) {
        let message =
            format!("the picture is {:?} instead of {} × {}", picture::size(&png), region.width, region.height);
        return Err(Refusal::new(ErrorCode::Internal, message));
    }
    tracing::debug!(elapsed = ?began.elapsed(), bytes = png.len(), "took a picture");
    Ok(reply::bytes("image/png", png))
}

/// A region must lie within what is shown, whole.
fn inside(region: Region, whole: Viewport) -> Result<(), Refusal> {
    let fits = |start: u32, length: u32, end: u32| length > 0 && start.checked_add(length).is_some_and(|e| e <= end);
    if fits(region.x, region.width, whole.width) && fits(region.y, region.height, whole.height) {
        return Ok(());
    }
    let message = format!("the region must lie within {} × {} pixels", whole.width, whole.height);
    Err(Refusal::new(ErrorCode::OutOfRange, message))
}

async fn viewport(core: &AgentState, requested: Viewport) -> Answer {
    let live = live(core)?;
    if !(1..=MAX_SIDE).contains(&requested.width) || !(1..=MAX_SIDE).contains(&requested.height) {
        let message = format!("width and height must be between 1 and {MAX_SIDE}");
        return Err(Refusal::new(ErrorCode::OutOfRange, message));
    }
    // What is being recorded goes on in a new part.
    let _paused = core.replays.pause().await;
    match &live.display {
        Some(display) => display.resize(requested).await.map_err(display_refusal)?,
        None => live.browser.resize(requested).await.map_err(browser_refusal)?,
    }
    core.update(|status| status.viewport = requested);
    Ok(empty())
}

fn live(core: &AgentState) -> Result<Arc<Live>, Refusal> {
    core.usable()
}

fn display_refusal(error: DisplayError) -> Refusal {
    match error {
        DisplayError::OutOfRange(..) => Refusal::new(ErrorCode::OutOfRange, error),
        other => Refusal::new(ErrorCode::Internal, other),
    }
}

fn browser_refusal(error: CdpError) -> Refusal {
    let code = match error {
        CdpError::Timeout { .. } | CdpError::Closed | CdpError::Connect(_) => ErrorCode::BrowserHung,
        CdpError::Dialog(_) => ErrorCode::InvalidState,
        CdpError::Refused { .. } => ErrorCode::Internal,
    };
    Refusal::new(code, error)
}

/// One line per event: a greeting, what happens, a heartbeat so that either side notices a dead one, the end.
fn events(core: &Arc<AgentState>) -> Response<Body> {
    let hello = Event::Hello { version: PROTOCOL_VERSION, nonce: core.config.nonce.clone() };
    let source =
        Source { core: Arc::clone(core), status: core.status(), first: Some(hello), last: None, place: String::new() };
    let listener = core.listener();
    reply::stream("application/x-ndjson", lines(source, listener))
}

struct Source {
    core: Arc<AgentState>,
    status: watch::Receiver<Status>,
    first: Option<Event>,
    /// The state told last. `Starting` is not told.
    last: Option<State>,
    /// Where the browser answered then: one that was started anew is ready once more.
    place: String,
}

fn lines(source: Source, listener: Listener) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold((source, listener), |(mut source, listener)| async move {
        let event = source.next().await?;
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        Some((Ok(Bytes::from(line)), (source, listener)))
    })
}

impl Source {
    async fn next(&mut self) -> Option<Event> {
        if let Some(hello) = self.first.take() {
            return Some(hello);
        }
        loop {
            let (state, place) = {
                let status = self.status.borrow_and_update();
                (status.state.clone(), status.browser_ws_path.clone())
            };
            let elsewhere = state == State::Ready && place != self.place;
            if state != State::Starting && (elsewhere || self.last.as_ref() != Some(&state)) {
                self.place = place;
                if self.last.as_ref().is_some_and(is_end) {
                    return None;
                }
                self.last = Some(state.clone());
                return Some(self.event(state));
            }
            if self.last.as_ref().is_some_and(is_end) {
                self.core.report();
                return None;
            }
            match tokio::time::timeout(Duration::from_secs(HEARTBEAT_SECONDS), self.status.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some(Event::Heartbeat),
            }
        }
    }

    fn event(&self, state: State) -> Event {
        match state {
            State::Starting | State::Closed => Event::Heartbeat,
            State::Ready => Event::Ready,
            State::Failed { message, .. } => Event::Exited { reason: ExitReason::Failed, detail: message },
            State::Exited { reason } => Event::Exited { reason, detail: self.core.detail() },
        }
    }
}

fn is_end(state: &State) -> bool {
    matches!(state, State::Failed { .. } | State::Exited { .. })
}
