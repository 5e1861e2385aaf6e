//! Telemetry of the session: numbered events, which are buffered until the server has stored them.
//!
//! Nothing is captured without a requested category. With one, a thread of its own holds a connection to the browser,
//! so that a page that floods its console slows down the capture and not the operations of the session.

mod addresses;
mod captcha;
mod capture;
mod categories;
mod console;
mod event;
#[cfg(test)]
mod fake_browser;
mod graphql;
mod interaction;
mod interaction_script;
mod network;
mod open_captchas;
mod page;
mod redactor;
mod requests;
mod screenshots;
mod secrets;
mod session;
mod system;
mod throttle;
mod unconfirmed;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::watch;

use self::capture::Capture;
use self::categories::{CaptureRequest, CapturedCategories};
use self::event::{Event, monitor};
pub(crate) use self::open_captchas::kind_of as captcha_kind;
use self::screenshots::Screenshots;
pub(crate) use self::system::Phase;
use self::unconfirmed::UnconfirmedEvents;
use crate::browser_handle::BrowserHandle;
use crate::cdp::Endpoint;
use crate::clock::now_us;
use crate::egress::FailedTunnels;
use crate::reply::{self, Answer, Body, Refusal, empty, ok, read};
use crate::screen_capture::ScreenCapture;
use casement_agent_protocol::telemetry::{
    CONFIGURE, CONFIRM, ConfigureRequest, ConfirmRequest, FINISH, FOLLOW, FinishResponse, FollowRequest,
};
use casement_agent_protocol::{ErrorCode, State};

/// The timeout of a change of the categories on all pages. A page that hangs does not delay it for longer.
const APPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of the end of a capture, in which the browser's last messages are read. The server waits a little longer.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a restart of the browser, and the pause after a failed connection to it.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(90);
const RETRY_BACKOFF: Duration = Duration::from_millis(100);
/// The timeout of the end of a session, which waits until the server has read the last events.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The capture of a session.
#[derive(Debug)]
pub(crate) struct Telemetry {
    browser: BrowserHandle,
    screen: ScreenCapture,
    failed_tunnels: Arc<FailedTunnels>,
    events: Arc<UnconfirmedEvents>,
    request: watch::Sender<CaptureRequest>,
    /// The number of the last request that is applied to all pages.
    applied: watch::Sender<u64>,
    is_running: Mutex<bool>,
}

impl Telemetry {
    pub(crate) fn new(browser: BrowserHandle, screen: ScreenCapture, failed_tunnels: Arc<FailedTunnels>) -> Self {
        let (events, request, applied, is_running) = Default::default();
        Self { browser, screen, failed_tunnels, events, request, applied, is_running }
    }

    /// Serves `/v1/telemetry/…`.
    pub(crate) async fn serve(self: &Arc<Self>, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            CONFIGURE => self.configure(read(body).await?).await,
            FOLLOW => Ok(self.follow(read(body).await?)),
            CONFIRM => {
                let ConfirmRequest { through } = read(body).await?;
                self.events.confirm(through);
                Ok(empty())
            }
            FINISH => {
                drop(tokio::time::timeout(FINISH_TIMEOUT, self.stop()).await);
                ok(&FinishResponse { last: self.events.finish() })
            }
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn configure(self: &Arc<Self>, request: ConfigureRequest) -> Answer {
        let categories = CapturedCategories::of(&request.categories);
        self.events.set_addresses(request.addresses);
        let number = self.request_capture(categories);
        let can_apply = if categories.any() {
            self.start().map_err(|error| Refusal::new(ErrorCode::Internal, error))?;
            self.browser.ready().is_some()
        } else {
            // Waits for the end of the capture, so that no event after the response is captured.
            *self.is_running.lock()
        };
        if can_apply {
            drop(tokio::time::timeout(APPLY_TIMEOUT, self.wait_until_applied(number)).await);
        }
        Ok(empty())
    }

    /// Publishes a request and returns its number.
    fn request_capture(&self, categories: CapturedCategories) -> u64 {
        let mut number = 0;
        self.request.send_modify(|request| {
            if categories.console && !request.categories.console {
                request.console_since = now_ms();
            }
            request.categories = categories;
            request.number += 1;
            number = request.number;
        });
        number
    }

    fn follow(&self, request: FollowRequest) -> http::Response<Body> {
        self.events.confirm(request.after);
        let lines = stream::unfold(self.events.read(request.after), |mut reader| async move {
            let lines = reader.next().await?;
            Some((Ok(lines), reader))
        });
        reply::stream("application/x-ndjson", lines)
    }

    /// Starts the thread of the capture, unless it runs already.
    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let mut is_running = self.is_running.lock();
        if *is_running {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let telemetry = Arc::clone(self);
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || {
            loop {
                runtime.block_on(telemetry.capture());
                let mut is_running = telemetry.is_running.lock();
                let request = telemetry.request.borrow().clone();
                // A new request may have arrived meanwhile.
                if !request.categories.any() {
                    *is_running = false;
                    telemetry.applied.send_replace(request.number);
                    break;
                }
            }
            runtime.shutdown_background();
        })?;
        *is_running = true;
        Ok(())
    }

    /// Captures while a category is requested, over all restarts of the browser.
    async fn capture(&self) {
        let mut request = self.request.subscribe();
        let mut lost: Option<LostBrowser> = None;
        while request.borrow_and_update().categories.any() {
            let Some(endpoint) = self.wait_for_browser(&mut request, &mut lost).await else { continue };
            let screenshots = Screenshots::new(self.browser.clone(), self.screen.clone());
            let (events, failed_tunnels) = (Arc::clone(&self.events), Arc::clone(&self.failed_tunnels));
            let mut capture = match Capture::connect(&endpoint, events, screenshots, failed_tunnels).await {
                Ok(capture) => capture,
                Err(error) => {
                    tracing::debug!(%error, "cannot connect the capture to the browser");
                    tokio::time::sleep(RETRY_BACKOFF).await;
                    continue;
                }
            };
            if let Some(mut lost) = lost.take() {
                // The console messages before the loss are captured already.
                capture.console_since = lost.at_ms;
                lost.report(self);
                let took = u64::try_from(lost.since.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.report_monitor(|| monitor("monitor_reconnected").with("reconnect_duration_ms", took));
            }
            if let Err(error) = capture.run(&mut request, &self.applied).await {
                tracing::debug!(%error, "the capture has lost the browser");
                lost = Some(LostBrowser::now());
                // The browser may report a moment later that it restarts.
                tokio::time::sleep(RETRY_BACKOFF).await;
            }
        }
    }

    /// Waits until the browser is ready; `None` if the request changes meanwhile or no status is published any more.
    async fn wait_for_browser(
        &self,
        request: &mut watch::Receiver<CaptureRequest>,
        lost: &mut Option<LostBrowser>,
    ) -> Option<Endpoint> {
        let mut status = self.browser.status().subscribe();
        loop {
            let state = status.borrow_and_update().state.clone();
            match state {
                State::Ready => return Some(self.browser.endpoint()),
                State::Starting => lost.iter_mut().for_each(|lost| lost.report(self)),
                _ => {}
            }
            let left = match lost {
                Some(lost) if lost.is_reported => RECONNECT_TIMEOUT.saturating_sub(lost.since.elapsed()),
                _ => Duration::MAX,
            };
            tokio::select! {
                changed = status.changed() => changed.ok()?,
                _ = request.changed() => return None,
                () = tokio::time::sleep(left) => {
                    *lost = None;
                    self.report_reconnect_failure();
                }
            }
        }
    }

    /// Ends the capture and waits until the server has read the last events.
    pub(crate) async fn drain(&self) {
        let drained = async {
            self.stop().await;
            self.events.drained().await;
        };
        drop(tokio::time::timeout(DRAIN_TIMEOUT, drained).await);
    }

    /// Ends the capture and waits until it has reported the pending events.
    async fn stop(&self) {
        if !*self.is_running.lock() {
            return;
        }
        self.wait_until_applied(self.request_capture(CapturedCategories::default())).await;
    }

    async fn wait_until_applied(&self, number: u64) {
        drop(self.applied.subscribe().wait_for(|applied| *applied >= number).await);
    }

    /// Reports that a restarting browser does not come back.
    pub(crate) fn report_reconnect_failure(&self) {
        self.report_monitor(|| monitor("monitor_reconnect_failed").with("reason", "reconnect_exhausted"));
    }

    /// Adds an event of the capture itself.
    fn report_monitor(&self, event: impl FnOnce() -> Event) {
        if self.request.borrow().categories.monitor() {
            self.events.add(event());
        }
    }
}

/// The loss of the browser.
struct LostBrowser {
    since: Instant,
    /// The same time, in milliseconds since 1970.
    at_ms: f64,
    is_reported: bool,
}

impl LostBrowser {
    fn now() -> Self {
        Self { since: Instant::now(), at_ms: now_ms(), is_reported: false }
    }

    /// Reports the loss once. It is not reported for a browser that ends with its session.
    fn report(&mut self, telemetry: &Telemetry) {
        if !std::mem::replace(&mut self.is_reported, true) {
            let event = || monitor("monitor_disconnected").at_ms(self.at_ms).with("reason", "chrome_restarted");
            telemetry.report_monitor(event);
        }
    }
}

/// Returns the time in milliseconds since 1970, as the browser counts.
fn now_ms() -> f64 {
    now_us() as f64 / 1000.0
}
