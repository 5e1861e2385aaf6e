//! What happens in the session, told to the server: an event for each thing, numbered, kept until the server has it.
//!
//! Nothing of it exists while no category is captured. While one is, a thread of its own holds a connection to the browser, so that a
//! page that floods its console slows the capture and not the session's operations.

mod addresses;
mod captcha;
mod capture;
mod console;
mod event;
#[cfg(test)]
mod fake_browser;
mod flow;
mod graphql;
mod interaction;
mod network;
mod page;
mod redactor;
mod screenshots;
mod secrets;
mod session;
mod system;
mod unconfirmed;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use self::captcha::kind_of as captcha_kind;
use self::capture::Capture;
use self::event::Event;
use self::screenshots::Screenshots;
pub(crate) use self::system::Phase;
use self::unconfirmed::UnconfirmedEvents;
use crate::reply::{self, Answer, Refusal, empty, read};
use crate::state::AgentState;
use casement_agent_protocol::telemetry::{
    CONFIGURE, CONFIRM, Category, ConfigureRequest, ConfirmRequest, FINISH, FOLLOW, FinishResponse, FollowRequest,
    SourceKind,
};
use casement_agent_protocol::{ErrorCode, State};

/// How long a change may take until every page tells what is wanted. A page that hangs does not hold it up for longer.
const APPLIED: Duration = Duration::from_secs(3);
/// How long a browser that is being started anew may take, and how often it is tried.
const COME_BACK: Duration = Duration::from_secs(90);
const RETRY_BACKOFF: Duration = Duration::from_millis(100);

/// How long the end of a session waits for its last events to be read by a server that follows.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Which categories are captured here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct On {
    console: bool,
    network: bool,
    page: bool,
    interaction: bool,
    system: bool,
    screenshot: bool,
    captcha: bool,
}

impl On {
    fn of(categories: &[Category]) -> Self {
        let has = |category| categories.contains(&category);
        Self {
            console: has(Category::Console),
            network: has(Category::Network),
            page: has(Category::Page),
            interaction: has(Category::Interaction),
            system: has(Category::System),
            screenshot: has(Category::Screenshot),
            captcha: has(Category::Captcha),
        }
    }

    fn any(self) -> bool {
        self != Self::default()
    }

    /// Needs to be attached to what is open.
    fn attaches(self) -> bool {
        Self { system: false, ..self }.any()
    }

    /// The capture tells of itself.
    const fn monitor(self) -> bool {
        self.console || self.network || self.page || self.interaction
    }
}

/// What is wanted, and which wish in a row it is.
#[derive(Debug, Clone, Default)]
struct CaptureRequest {
    on: On,
    number: u64,
    /// Since when consoles are wanted, in milliseconds since 1970: the capture may come to a page later than what it says.
    console_since: f64,
}

/// The capture of a session.
#[derive(Debug)]
pub(crate) struct Telemetry {
    buffered: Arc<UnconfirmedEvents>,
    requested_state: watch::Sender<CaptureRequest>,
    /// The last wish that is in force everywhere.
    applied: Arc<watch::Sender<u64>>,
    runs: Mutex<bool>,
}

impl Default for Telemetry {
    fn default() -> Self {
        let applied = Arc::new(watch::Sender::new(0));
        Self { buffered: Arc::default(), requested_state: watch::Sender::default(), applied, runs: Mutex::default() }
    }
}

/// The operations of `/v1/telemetry/…`.
pub(crate) async fn serve(core: &Arc<AgentState>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        CONFIGURE => configure(core, read(body).await?).await,
        FOLLOW => Ok(follow(core, read(body).await?)),
        CONFIRM => {
            let ConfirmRequest { through } = read(body).await?;
            core.telemetry.buffered.confirm(through);
            Ok(empty())
        }
        FINISH => {
            drop(tokio::time::timeout(APPLIED, core.telemetry.stop()).await);
            reply::ok(&FinishResponse { last: core.telemetry.buffered.finish() })
        }
        other => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {other}"))),
    }
}

async fn configure(core: &Arc<AgentState>, requested: ConfigureRequest) -> Answer {
    let telemetry = &core.telemetry;
    let on = On::of(&requested.categories);
    telemetry.buffered.report_addresses(requested.addresses);
    let mut number = 0;
    telemetry.requested_state.send_modify(|requested_state| {
        if on.console && !requested_state.on.console {
            requested_state.console_since = now_ms();
        }
        requested_state.on = on;
        requested_state.number += 1;
        number = requested_state.number;
    });
    if on.any() {
        begin(core).map_err(|error| Refusal::new(ErrorCode::Internal, error))?;
        if core.ready().is_some() {
            let mut applied = telemetry.applied.subscribe();
            let in_force = applied.wait_for(|applied| *applied >= number);
            drop(tokio::time::timeout(APPLIED, in_force).await);
        }
    }
    Ok(empty())
}

fn follow(core: &Arc<AgentState>, requested: FollowRequest) -> http::Response<reply::Body> {
    let buffered = &core.telemetry.buffered;
    buffered.confirm(requested.after);
    let reader = buffered.read(requested.after);
    let lines = stream::unfold(reader, |mut reader| async move {
        let lines = reader.next().await?;
        Some((Ok(lines), reader))
    });
    reply::stream("application/x-ndjson", lines)
}

/// Begins the capture, unless it runs.
fn begin(core: &Arc<AgentState>) -> std::io::Result<()> {
    let mut runs = core.telemetry.runs.lock();
    if *runs {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
    let core = Arc::clone(core);
    std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || {
        loop {
            runtime.block_on(capture(&core));
            let mut runs = core.telemetry.runs.lock();
            // It may be wanted again by now.
            if !core.telemetry.requested_state.borrow().on.any() {
                *runs = false;
                break;
            }
        }
        runtime.shutdown_background();
    })?;
    *runs = true;
    Ok(())
}

/// The browser was lost.
struct BrowserLost {
    since: Instant,
    /// The same, in milliseconds since 1970.
    at_ms: f64,
    reported: bool,
}

impl BrowserLost {
    fn now() -> Self {
        Self { since: Instant::now(), at_ms: now_ms(), reported: false }
    }

    /// Says so, once. It is not said of a browser that ends with its session.
    fn report(&mut self, telemetry: &Telemetry) {
        if !std::mem::replace(&mut self.reported, true) {
            let lost = || monitor("monitor_disconnected").at_ms(self.at_ms).with("reason", "chrome_restarted");
            telemetry.report_itself(lost);
        }
    }
}

/// Captures for as long as something is wanted, over every life of the browser.
async fn capture(core: &Arc<AgentState>) {
    let telemetry = &core.telemetry;
    let mut requested_state = telemetry.requested_state.subscribe();
    let mut lost: Option<BrowserLost> = None;
    while requested_state.borrow_and_update().on.any() {
        let Some(path) = browser(core, &mut requested_state, &mut lost).await else { continue };
        let screenshots = Screenshots::new(Arc::clone(core));
        let (buffered, failed_tunnels) = (Arc::clone(&telemetry.buffered), Arc::clone(&core.failed_tunnels));
        let connected =
            Capture::connect(core.config.debugging_port, &path, buffered, screenshots, failed_tunnels).await;
        let mut capture = match connected {
            Ok(capture) => capture,
            Err(error) => {
                tracing::debug!(%error, "the browser is not reached for the telemetry");
                tokio::time::sleep(RETRY_BACKOFF).await;
                continue;
            }
        };
        if let Some(mut lost) = lost.take() {
            // Told already, where it is not the browser that was lost.
            capture.console_since = lost.at_ms;
            lost.report(telemetry);
            let took = u64::try_from(lost.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            telemetry.report_itself(|| monitor("monitor_reconnected").with("reconnect_duration_ms", took));
        }
        if let Err(error) = capture.run(&mut requested_state, &telemetry.applied).await {
            tracing::debug!(%error, "the browser is gone for the telemetry");
            lost = Some(BrowserLost::now());
            // The browser may say a moment later that it is being started anew.
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
    }
    telemetry.applied.send_replace(requested_state.borrow().number);
}

/// Waits for the browser and answers where it is; none when the wish changed meanwhile or it does not come.
async fn browser(
    core: &AgentState,
    requested_state: &mut watch::Receiver<CaptureRequest>,
    lost: &mut Option<BrowserLost>,
) -> Option<String> {
    let mut status = core.status();
    loop {
        match &*status.borrow_and_update() {
            ready if ready.state == State::Ready => return Some(ready.browser_ws_path.clone()),
            other if other.state == State::Starting => lost.iter_mut().for_each(|lost| lost.report(&core.telemetry)),
            _ => {}
        }
        let time_limit = match lost {
            Some(lost) if lost.reported => COME_BACK.saturating_sub(lost.since.elapsed()),
            _ => Duration::MAX,
        };
        tokio::select! {
            changed = status.changed() => changed.ok()?,
            _ = requested_state.changed() => return None,
            () = tokio::time::sleep(time_limit) => {
                *lost = None;
                core.telemetry.not_coming_back();
            }
        }
    }
}

/// In milliseconds since 1970, as the browser counts.
fn now_ms() -> f64 {
    event::now() as f64 / 1000.0
}

fn monitor(kind: &'static str) -> Event {
    Event::new(kind, Category::Monitor, SourceKind::Cdp)
}

impl Telemetry {
    /// Ends the capture, and gives a server that follows the time to read what happened last.
    pub(crate) async fn drain(&self) {
        let last_words = async {
            self.stop().await;
            self.buffered.drained().await;
        };
        drop(tokio::time::timeout(LAST_WORDS, last_words).await);
    }

    /// Returns when nothing is captured any more, and what was open has been told of.
    async fn stop(&self) {
        if !*self.runs.lock() {
            return;
        }
        let mut applied = self.applied.subscribe();
        let mut number = 0;
        self.requested_state.send_modify(|requested_state| {
            requested_state.on = On::default();
            requested_state.number += 1;
            number = requested_state.number;
        });
        drop(applied.wait_for(|applied| *applied >= number).await);
    }

    /// A browser that was being started anew will not come back.
    pub(crate) fn not_coming_back(&self) {
        self.report_itself(|| monitor("monitor_reconnect_failed").with("reason", "reconnect_exhausted"));
    }

    fn report_itself(&self, event: impl FnOnce() -> Event) {
        if self.requested_state.borrow().on.monitor() {
            self.buffered.add(event());
        }
    }
}
