//! One connection to the browser, attached to all its targets.
//!
//! Every page, frame, worker and pop-up is paused before its scripts run, and resumed by the batch of messages that
//! enables its notices. Therefore no early event is missed, and the target waits for one round trip only.

mod dispatch;
mod pending_query;
mod targets;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::categories::{CaptureRequest, CapturedCategories};
use super::open_captchas::OpenCaptchas;
use super::requests::Requests;
use super::screenshots::Screenshots;
use super::session::Sessions;
use super::throttle::Throttle;
use super::unconfirmed::UnconfirmedEvents;
use super::wire::Wire;
use crate::cdp::Endpoint;
use crate::egress::FailedTunnels;

pub(super) use self::pending_query::PendingQuery;
pub(super) use self::timers::{Timer, Timers};

/// The maximum number of messages of one batch.
const BATCH: usize = 256;
/// The delay after which a loss is reported as a gap, unless an event is reported before.
const GAP_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout for earlier messages of the browser at the end of the capture.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(4);
/// The time without a message after which the browser has no earlier messages left.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);

/// The capture of one browser process.
pub(super) struct Capture {
    wire: Wire,
    next_id: u64,
    /// The pending calls by number, with their session (empty for the browser itself) and their purpose.
    pending: HashMap<u64, (String, PendingQuery)>,
    pub(super) categories: CapturedCategories,
    pub(super) events: Arc<UnconfirmedEvents>,
    pub(super) sessions: Sessions,
    pub(super) requests: Requests,
    pub(super) captchas: OpenCaptchas,
    pub(super) screenshots: Screenshots,
    pub(super) failed_tunnels: Arc<FailedTunnels>,
    pub(super) timers: Timers,
    pub(super) console_throttle: Throttle,
    /// True from a loss until its gap is reported.
    has_lost: bool,
    /// The time of the first captured console messages, in milliseconds since 1970.
    pub(super) console_since: f64,
    /// True once the open pages are attached.
    is_attached: bool,
    /// The calls whose replies complete the pending request, and its number.
    pending_setup: BTreeSet<u64>,
    pending_request: Option<u64>,
}

impl Capture {
    /// Connects to the browser.
    pub(super) async fn connect(
        endpoint: &Endpoint,
        events: Arc<UnconfirmedEvents>,
        screenshots: Screenshots,
        failed_tunnels: Arc<FailedTunnels>,
    ) -> io::Result<Self> {
        let wire = Wire::connect(endpoint).await?;
        let (pending, categories, sessions, requests, captchas) = Default::default();
        let (timers, console_throttle, has_lost, console_since, is_attached) = Default::default();
        let (pending_setup, pending_request) = Default::default();
        Ok(Self {
            wire,
            next_id: 1,
            pending,
            categories,
            events,
            sessions,
            requests,
            captchas,
            screenshots,
            failed_tunnels,
            timers,
            console_throttle,
            has_lost,
            console_since,
            is_attached,
            pending_setup,
            pending_request,
        })
    }

    /// Captures until the connection fails, or no category is requested any more.
    pub(super) async fn run(
        &mut self,
        request: &mut watch::Receiver<CaptureRequest>,
        applied: &watch::Sender<u64>,
    ) -> io::Result<()> {
        let ended = self.listen(request, applied).await;
        if ended.is_ok() {
            drop(tokio::time::timeout(CATCH_UP_TIMEOUT, self.catch_up()).await);
        }
        self.drop_pending(|_| true);
        self.end_all_captchas();
        self.events.settle();
        ended
    }

    /// Handles all messages that the browser sent before now, and the pending response bodies.
    async fn catch_up(&mut self) -> io::Result<()> {
        self.ask(None, "Browser.getVersion", json!({}), PendingQuery::CatchUp);
        let now = self.next_id;
        loop {
            self.handle_batch()?;
            let is_needed = |id: &u64, query: &PendingQuery| {
                *id + 1 == now || (*id < now && matches!(query, PendingQuery::ResponseBody { .. }))
            };
            if !self.pending.iter().any(|(id, (_, query))| is_needed(id, query)) {
                return Ok(());
            }
            self.wire.flush().await?;
            tokio::time::timeout(SILENCE_TIMEOUT, self.wire.read_more()).await??;
        }
    }

    async fn listen(
        &mut self,
        request: &mut watch::Receiver<CaptureRequest>,
        applied: &watch::Sender<u64>,
    ) -> io::Result<()> {
        let mut screenshots = self.screenshots.results();
        loop {
            let requested = request.borrow_and_update().clone();
            if !requested.categories.any() {
                return Ok(());
            }
            self.pending_request = Some(requested.number);
            // Calls without a reply so far may never get one.
            self.pending_setup.clear();
            self.console_since = self.console_since.max(requested.console_since);
            self.set_categories(requested.categories);
            while !request.has_changed().unwrap_or(true) {
                self.handle_batch()?;
                self.wire.flush().await?;
                if self.pending_setup.is_empty()
                    && let Some(number) = self.pending_request.take()
                {
                    applied.send_replace(number);
                }
                self.wait_for_event(request, &mut screenshots).await?;
            }
        }
    }

    /// Waits for the next message, timer, screenshot or request, and handles due timers.
    async fn wait_for_event(
        &mut self,
        request: &mut watch::Receiver<CaptureRequest>,
        screenshots: &mut mpsc::Receiver<Vec<u8>>,
    ) -> io::Result<()> {
        let latest = Instant::now() + Duration::from_secs(3600);
        let timer = self.timers.next().unwrap_or(latest).min(self.screenshots.next().unwrap_or(latest));
        tokio::select! {
            read = self.wire.read_more() => read?,
            () = tokio::time::sleep_until(timer) => {}
            Some(png) = screenshots.recv() => self.screenshots.report(png, &self.events),
            _ = request.changed() => request.mark_changed(),
        }
        while let Some(timer) = self.timers.take_due() {
            match timer {
                Timer::Idle(session) => self.idle(&session),
                Timer::Settled(session) => self.layout_settled(&session),
                Timer::Captchas => self.check_captchas(),
                Timer::Gap => {
                    self.has_lost = false;
                    self.events.settle();
                    self.release_all_objects();
                }
            }
        }
        self.screenshots.tick();
        Ok(())
    }

    fn handle_batch(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            self.wire.skips_console = self.console_throttle.is_exhausted();
            let Some(message) = self.wire.message()? else { break };
            self.handle(&message);
        }
        Ok(())
    }

    /// Counts a message or an event that could not be captured.
    pub(super) fn lose(&mut self) {
        self.events.lose();
        if !std::mem::replace(&mut self.has_lost, true) {
            self.timers.set(Instant::now() + GAP_INTERVAL, Timer::Gap);
        }
    }

    /// Calls a method and discards the reply. Returns the number of the call.
    pub(super) fn send(&mut self, session: Option<&str>, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.wire.send(message.to_string().as_bytes());
        id
    }

    /// Calls a method and handles the reply by its purpose.
    pub(super) fn ask(&mut self, session: Option<&str>, method: &str, params: Value, query: PendingQuery) {
        let id = self.send(session, method, params);
        self.pending.insert(id, (session.unwrap_or_default().to_owned(), query));
    }

    /// Drops the pending calls of these sessions, which will not be answered.
    fn drop_pending(&mut self, of: impl Fn(&str) -> bool) {
        let dropped: Vec<_> = self.pending.extract_if(|_, (session, _)| of(session)).collect();
        for (_, (_, query)) in dropped {
            match query {
                PendingQuery::ResponseBody { session, id, request } => {
                    self.report_with_body(&session, &id, &request, None)
                }
                PendingQuery::CaptchaWorld { frame } => self.set_captcha_world(&frame, None),
                PendingQuery::CaptchaToken { frame } => self.check_captcha_token(&frame, None),
                PendingQuery::FrameTree { .. }
                | PendingQuery::NewDocumentScript { .. }
                | PendingQuery::AutoAttach
                | PendingQuery::CatchUp => {}
            }
        }
    }
}
