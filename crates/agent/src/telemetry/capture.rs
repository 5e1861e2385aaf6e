//! One connection to the browser, attached to everything that it shows and runs.
//!
//! Every page, frame, worker and pop-up waits for this connection before its first line of script, and is told to go on in the same
//! breath in which it is told what to say: nothing of its beginning is missed, and it waits one exchange of messages.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::captcha::Captchas;
use super::flow::Flow;
use super::interaction::{self, BINDING, WORLD};
use super::network::{MAX_BUFFERED_BODIES, MAX_BUFFERED_BODY, MAX_POST, Request, Requests};
use super::page::TreeFrame;
use super::redactor::RedactedMessage;
use super::screenshots::Screenshots;
use super::session::{Kind, Session, Sessions, TargetInfo};
use super::system::{Phase, crashed};
use super::unconfirmed::UnconfirmedEvents;
use super::wire::Wire;
use super::{CaptureRequest, On};
use crate::egress::FailedTunnels;

/// Pages, frames and workers attached at once. Those beyond are let go, and not captured.
const MAX_SESSIONS: usize = 1000;
/// Questions of new pages that a change of what is wanted waits for.
const MAX_SETTLING: usize = 20 * MAX_SESSIONS;
/// Messages that are taken in before anything else has its turn.
const BATCH: usize = 256;
/// How long after a loss it is said, if nothing else is told meanwhile.
const GAP: Duration = Duration::from_millis(500);
/// How long the end of the capture waits for what the browser has told before.
const CAUGHT_UP: Duration = Duration::from_secs(1);
const REMOVE_SCRIPT: &str = "Page.removeScriptToEvaluateOnNewDocument";

/// What is captured of one life of the browser.
pub(super) struct Capture {
    wire: Wire,
    next: u64,
    /// By its number: of which session it is asked, the empty one being the browser itself, and for what.
    requested: HashMap<u64, (String, PendingQuery)>,
    pub(super) on: On,
    pub(super) buffered: Arc<UnconfirmedEvents>,
    pub(super) sessions: Sessions,
    pub(super) requests: Requests,
    pub(super) captchas: Captchas,
    pub(super) screenshots: Screenshots,
    pub(super) failed_tunnels: Arc<FailedTunnels>,
    pub(super) timers: Timers,
    pub(super) console_flow: Flow,
    /// Something was lost a moment ago.
    loses: bool,
    /// What was said on a console before is not told. In milliseconds since 1970.
    pub(super) console_since: f64,
    /// The pages that were open before are attached.
    begun: bool,
    /// Questions on whose answers a change of the wish waits, and which change.
    settling: BTreeSet<u64>,
    settled: Option<u64>,
}

/// What an answer is for.
pub(super) enum PendingQuery {
    /// The pages that were open are attached.
    Begun,
    /// What was told before is here.
    CaughtUp,
    Frames {
        session: String,
    },
    Body {
        session: String,
        id: String,
        request: Box<Request>,
    },
    Script {
        session: String,
        stays: bool,
    },
    CaptchaWorld {
        frame: String,
    },
    CaptchaToken {
        frame: String,
    },
}

/// What happens by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Idle(String),
    Settled(String),
    Captchas,
    Gap,
}

/// What happens when.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    fn due(&mut self) -> Option<Timer> {
        self.next().filter(|at| *at <= Instant::now())?;
        self.0.pop_first().map(|(_, timer)| timer)
    }
}

/// A message of the browser.
#[derive(Deserialize)]
struct Incoming<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, rename = "sessionId")]
    session: Option<Cow<'a, str>>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attached {
    session_id: String,
    target_info: TargetInfo,
    waiting_for_debugger: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detached {
    session_id: String,
}

#[derive(Deserialize)]
struct Added {
    identifier: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    context: ContextDescription,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextDescription {
    id: i64,
    #[serde(default)]
    aux_data: ContextPlace,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContextPlace {
    frame_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Destroyed {
    execution_context_id: i64,
}

impl Capture {
    /// Connects to the browser at `path` on `port`.
    pub(super) async fn connect(
        port: u16,
        path: &str,
        buffered: Arc<UnconfirmedEvents>,
        screenshots: Screenshots,
        failed_tunnels: Arc<FailedTunnels>,
    ) -> io::Result<Self> {
        let wire = Wire::connect(port, path).await?;
        Ok(Self {
            wire,
            next: 1,
            requested: HashMap::new(),
            on: On::default(),
            buffered,
            sessions: Sessions::default(),
            requests: Requests::default(),
            captchas: Captchas::default(),
            screenshots,
            failed_tunnels,
            timers: Timers::default(),
            console_flow: Flow::default(),
            loses: false,
            console_since: 0.0,
            begun: false,
            settling: BTreeSet::new(),
            settled: None,
        })
    }

    /// Captures until the connection ends, with an error, or nothing is wanted of it any more.
    pub(super) async fn run(
        &mut self,
        requested_state: &mut watch::Receiver<CaptureRequest>,
        applied: &watch::Sender<u64>,
    ) -> io::Result<()> {
        let ended = self.listen(requested_state, applied).await;
        if ended.is_ok() {
            // A browser that does not answer has told what it had to.
            drop(tokio::time::timeout(CAUGHT_UP, self.catch_up()).await);
        }
        self.unanswered(|_| true);
        self.captchas_end();
        self.buffered.settle();
        ended
    }

    /// Takes in what the browser told before now, and the answers that it was asked for.
    async fn catch_up(&mut self) -> io::Result<()> {
        self.ask(None, "Browser.getVersion", json!({}), PendingQuery::CaughtUp);
        let now = self.next;
        loop {
            self.take_in()?;
            let waits = |id: &u64, requested: &PendingQuery| {
                *id + 1 == now || (*id < now && matches!(requested, PendingQuery::Body { .. }))
            };
            if !self.requested.iter().any(|(id, (_, requested))| waits(id, requested)) {
                return Ok(());
            }
            self.wire.flush().await?;
            self.wire.more().await?;
        }
    }

    async fn listen(
        &mut self,
        requested_state: &mut watch::Receiver<CaptureRequest>,
        applied: &watch::Sender<u64>,
    ) -> io::Result<()> {
        let mut pictures = self.screenshots.done();
        loop {
            let wanted = requested_state.borrow_and_update().clone();
            if !wanted.on.any() {
                return Ok(());
            }
            self.settled = Some(wanted.number);
            // Whatever was not answered by now may never be.
            self.settling.clear();
            self.console_since = self.console_since.max(wanted.console_since);
            self.become_on(wanted.on);
            while !requested_state.has_changed().unwrap_or(true) {
                self.take_in()?;
                self.wire.flush().await?;
                if self.settling.is_empty()
                    && let Some(number) = self.settled.take()
                {
                    applied.send_replace(number);
                }
                self.wait(requested_state, &mut pictures).await?;
            }
        }
    }

    /// Waits for whatever comes next.
    async fn wait(
        &mut self,
        requested_state: &mut watch::Receiver<CaptureRequest>,
        pictures: &mut mpsc::Receiver<Vec<u8>>,
    ) -> io::Result<()> {
        let far = Instant::now() + Duration::from_secs(3600);
        let timer = self.timers.next().unwrap_or(far).min(self.screenshots.next().unwrap_or(far));
        tokio::select! {
            more = self.wire.more() => more?,
            () = tokio::time::sleep_until(timer) => {}
            Some(png) = pictures.recv() => self.screenshots.taken(png, &self.buffered),
            _ = requested_state.changed() => requested_state.mark_changed(),
        }
        while let Some(timer) = self.timers.due() {
            match timer {
                Timer::Idle(session) => self.idle(&session),
                Timer::Settled(session) => self.layout_settled(&session),
                Timer::Captchas => self.look_at_captchas(),
                Timer::Gap => {
                    self.loses = false;
                    self.buffered.settle();
                    self.let_all_go();
                }
            }
        }
        self.screenshots.tick();
        Ok(())
    }

    /// Takes in what has arrived, up to a batch of it.
    fn take_in(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            self.wire.skips_console = self.console_flow.is_dry();
            let Some(message) = self.wire.message()? else { break };
            self.heed(&message);
        }
        Ok(())
    }

    fn heed(&mut self, message: &RedactedMessage) {
        if message.lost {
            self.lose();
            return;
        }
        let Ok(incoming) = serde_json::from_slice::<Incoming<'_>>(&message.text) else {
            tracing::debug!("a message of the browser is not readable");
            self.lose();
            return;
        };
        if let Some(id) = incoming.id {
            self.answered(id, incoming.result);
        } else if let (Some(method), Some(params)) = (incoming.method, incoming.params) {
            self.notice(incoming.session.as_deref(), &method, params, message.cut);
        }
    }

    /// What the browser told, or nothing, which is counted, if that is not readable.
    pub(super) fn read<'a, T: Deserialize<'a>>(&mut self, params: &'a RawValue) -> Option<T> {
        let read = serde_json::from_str(params.get());
        if let Err(error) = &read {
            tracing::debug!(%error, "something that the browser told is not readable");
            self.lose();
        }
        read.ok()
    }

    /// Something was told that could not be taken in.
    pub(super) fn lose(&mut self) {
        self.buffered.lose();
        if !std::mem::replace(&mut self.loses, true) {
            self.timers.set(Instant::now() + GAP, Timer::Gap);
        }
    }

    fn answered(&mut self, id: u64, result: Option<&RawValue>) {
        self.settling.remove(&id);
        match (self.requested.remove(&id).map(|(_, requested)| requested), result) {
            (Some(PendingQuery::Begun), Some(_)) => self.begun = true,
            (Some(PendingQuery::Begun), None) => self.not_begun(),
            (Some(PendingQuery::Frames { session }), Some(result)) => self.frames_reported(&session, result),
            (Some(PendingQuery::Body { session, id, request }), result) => {
                self.body_arrived(&session, &id, &request, result)
            }
            (Some(PendingQuery::CaptchaWorld { frame }), result) => self.captcha_world(&frame, result),
            (Some(PendingQuery::CaptchaToken { frame }), result) => self.captcha_token(&frame, result),
            (Some(PendingQuery::Script { session, stays }), Some(result)) => self.script_added(&session, stays, result),
            (Some(PendingQuery::Frames { .. } | PendingQuery::Script { .. } | PendingQuery::CaughtUp) | None, _) => {}
        }
    }

    /// The browser does not let itself be listened to.
    fn not_begun(&self) {
        if self.on.monitor() {
            self.buffered.add(super::monitor("monitor_init_failed").with("step", "Target.setAutoAttach"));
        }
    }

    fn notice(&mut self, session: Option<&str>, method: &str, params: &RawValue, cut: bool) {
        match method {
            "Target.attachedToTarget" => self.attached(session, params),
            "Target.detachedFromTarget" => self.detached(params),
            "Target.targetCrashed" => self.page_crashed(),
            "Inspector.targetCrashed" => self.answers_no_more(session.unwrap_or_default()),
            _ => {}
        }
        let Some(session) = session else { return };
        match method {
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" if self.on.console => {
                let began = std::time::Instant::now();
                match method {
                    "Runtime.consoleAPICalled" => self.console_called(session, params, cut),
                    _ => self.exception_thrown(session, params, cut),
                }
                self.console_flow.took(began);
            }
            "Runtime.executionContextCreated" => self.context_made(session, params),
            "Runtime.executionContextDestroyed" => self.context_gone(session, params),
            "Runtime.executionContextsCleared" => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.contexts.clear();
                }
            }
            "Runtime.bindingCalled" if self.on.interaction => self.interacted(session, params, cut),
            "Network.requestWillBeSent" if self.on.network => self.request_sent(session, params, cut),
            "Network.responseReceived" if self.on.network => self.response_received(params),
            "Network.dataReceived" if self.on.network => self.data_received(params),
            "Network.loadingFinished" if self.on.network => self.loading_finished(session, params),
            "Network.loadingFailed" if self.on.network => self.loading_failed(session, params, cut),
            "Page.frameNavigated" => self.frame_navigated(session, params, cut),
            "Page.navigatedWithinDocument" => self.moved_within(session, params),
            "Page.frameDetached" => self.frame_detached(session, params),
            "Page.domContentEventFired" | "Page.loadEventFired" => self.page_loaded(session, method, params),
            "PerformanceTimeline.timelineEventAdded" if self.on.page => self.rendered(session, params, cut),
            _ => {}
        }
    }

    /// Calls a method and lets its answer go.
    pub(super) fn report(&mut self, session: Option<&str>, method: &str, params: Value) {
        self.post(session, method, params);
    }

    /// Calls a method whose answer is for something.
    pub(super) fn ask(&mut self, session: Option<&str>, method: &str, params: Value, requested: PendingQuery) {
        let id = self.post(session, method, params);
        self.requested.insert(id, (session.unwrap_or_default().to_owned(), requested));
    }

    fn post(&mut self, session: Option<&str>, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.wire.send(message.to_string().as_bytes());
        id
    }

    /// Captures these categories from now on.
    fn become_on(&mut self, on: On) {
        let before = std::mem::replace(&mut self.on, on);
        let from = self.next;
        if on.system && !before.system {
            let filter = json!([{ "type": "page" }, { "type": "iframe" }, { "type": "service_worker" }]);
            self.report(None, "Target.setDiscoverTargets", json!({ "discover": true, "filter": filter }));
        }
        if !on.system && before.system {
            self.report(None, "Target.setDiscoverTargets", json!({ "discover": false }));
        }
        if on.attaches() && !before.attaches() {
            self.begun = false;
            self.ask(None, "Target.setAutoAttach", auto_attach(true), PendingQuery::Begun);
        }
        if !on.attaches() && before.attaches() {
            self.report(None, "Target.setAutoAttach", auto_attach(false));
        }
        let sessions: Vec<(String, Kind)> = self.sessions.0.values().map(|one| (one.id.clone(), one.kind)).collect();
        for (session, kind) in sessions {
            self.set_up(&session, kind, before);
        }
        if !on.network {
            self.requests.clear();
            self.sessions.0.values_mut().for_each(|session| session.navigation.forget_requests());
        }
        if !on.captcha {
            self.captchas.clear();
        }
        self.screenshots.turn(on.screenshot);
        self.settling.extend(from..self.next);
    }

    /// Tells a session what to say, if that is not what it says already.
    fn set_up(&mut self, session: &str, kind: Kind, before: On) {
        let on = self.on;
        let at = Some(session);
        if on.console != before.console {
            self.report(at, if on.console { "Runtime.enable" } else { "Runtime.disable" }, json!({}));
        }
        if on.network != before.network {
            let bounds = json!({
                "maxTotalBufferSize": MAX_BUFFERED_BODIES, "maxResourceBufferSize": MAX_BUFFERED_BODY, "maxPostDataSize": MAX_POST,
            });
            self.report(at, if on.network { "Network.enable" } else { "Network.disable" }, bounds);
        }
        // It tells that a page's process is gone, and with it the answers that it waited for.
        if kind.shows() && on.network != before.network {
            self.report(at, if on.network { "Inspector.enable" } else { "Inspector.disable" }, json!({}));
        }
        if kind.shows() && on.page != before.page {
            let kinds = if on.page { json!(["layout-shift", "largest-contentful-paint"]) } else { json!([]) };
            self.report(at, "PerformanceTimeline.enable", json!({ "eventTypes": kinds }));
        }
        if kind.shows() && on.interaction != before.interaction {
            self.listen_to_user(session, on.interaction);
        }
    }

    /// Begins or ends to hear what the user does in a session's pages.
    fn listen_to_user(&mut self, session: &str, on: bool) {
        let at = Some(session);
        let known = self.sessions.get_mut(session).map(|session| std::mem::take(&mut session.scripts));
        for identifier in known.into_iter().flatten() {
            self.report(at, REMOVE_SCRIPT, json!({ "identifier": identifier }));
        }
        let source: &str = if on {
            self.report(at, "Runtime.addBinding", json!({ "name": BINDING, "executionContextName": WORLD }));
            &interaction::SCRIPT
        } else {
            self.report(at, "Runtime.removeBinding", json!({ "name": BINDING }));
            interaction::STOP
        };
        let script = json!({ "source": source, "worldName": WORLD, "runImmediately": true });
        self.ask(
            at,
            "Page.addScriptToEvaluateOnNewDocument",
            script,
            PendingQuery::Script { session: session.to_owned(), stays: on },
        );
    }

    /// A script for every new document is in place. One that is wanted no more has done what it had to in those that there are.
    fn script_added(&mut self, session: &str, stays: bool, result: &RawValue) {
        let Some(Added { identifier }) = self.read(result) else { return };
        match self.sessions.get_mut(session) {
            Some(known) if stays && self.on.interaction => known.scripts.push(identifier),
            _ => self.report(Some(session), REMOVE_SCRIPT, json!({ "identifier": identifier })),
        }
    }

    fn attached(&mut self, parent: Option<&str>, params: &RawValue) {
        let Some(attached) = self.read::<Attached>(params) else { return };
        let Attached { session_id: id, target_info: info, waiting_for_debugger: waiting } = attached;
        let kind = Kind::of(&info.kind);
        let is_new = !self.sessions.0.values().any(|one| one.target == info.target_id);
        let (Some(kind), true) = (kind, is_new && self.sessions.0.len() < MAX_SESSIONS) else {
            if waiting {
                self.report(Some(&id), "Runtime.runIfWaitingForDebugger", json!({}));
            }
            self.report(parent, "Target.detachFromTarget", json!({ "sessionId": id }));
            if kind.is_some() && is_new {
                self.lose();
            }
            return;
        };
        let from = self.next;
        let root = parent.and_then(|parent| Some(self.sessions.get(parent)?.root.clone()));
        let root = root.filter(|_| matches!(kind, Kind::Frame | Kind::Worker));
        self.sessions.0.insert(id.clone(), Session::new(&id, &info, kind, root));
        if kind == Kind::Page && self.begun && self.on.page {
            self.tab_opened(&info);
        }
        if kind.shows() {
            self.report(Some(&id), "Page.enable", json!({}));
        }
        self.set_up(&id, kind, On::default());
        // What is not made for it refuses it, and goes on.
        self.report(Some(&id), "Target.setAutoAttach", auto_attach(true));
        if kind.shows() && !waiting {
            self.ask(Some(&id), "Page.getFrameTree", json!({}), PendingQuery::Frames { session: id.clone() });
        }
        if waiting {
            self.report(Some(&id), "Runtime.runIfWaitingForDebugger", json!({}));
        }
        // Those that come and go without an answer are not waited for without end.
        if self.settled.is_some() && self.settling.len() < MAX_SETTLING {
            self.settling.extend(from..self.next);
        }
    }

    fn detached(&mut self, params: &RawValue) {
        let Some(Detached { session_id: id }) = self.read(params) else { return };
        self.unanswered(|session| session == id);
        self.answers_no_more(&id);
        self.captchas_of_session_end(&id);
        self.sessions.0.remove(&id);
    }

    /// Nobody answers any more what was asked of these sessions.
    fn unanswered(&mut self, of: impl Fn(&str) -> bool) {
        let unanswered: Vec<(u64, (String, PendingQuery))> =
            self.requested.extract_if(|_, (session, _)| of(session)).collect();
        for (_, (_, requested)) in unanswered {
            match requested {
                PendingQuery::Body { session, id, request } => self.body_arrived(&session, &id, &request, None),
                PendingQuery::CaptchaWorld { frame } => self.captcha_world(&frame, None),
                PendingQuery::CaptchaToken { frame } => self.captcha_token(&frame, None),
                PendingQuery::Frames { .. }
                | PendingQuery::Script { .. }
                | PendingQuery::Begun
                | PendingQuery::CaughtUp => {}
            }
        }
    }

    /// What was asked for there is not answered any more.
    fn answers_no_more(&mut self, session: &str) {
        let lost = self.requests.forget(session);
        self.landed(session, lost);
    }

    fn page_crashed(&self) {
        if self.on.system {
            self.buffered.add(crashed("chromium-renderer", Phase::Running, None).with_word("Target.targetCrashed"));
        }
    }

    fn context_made(&mut self, session: &str, params: &RawValue) {
        let Some(Context { context }) = self.read(params) else { return };
        if let Some(session) = self.sessions.get_mut(session) {
            session.remember_context(context.id, context.aux_data.frame_id);
        }
    }

    fn context_gone(&mut self, session: &str, params: &RawValue) {
        let Some(gone) = self.read::<Destroyed>(params) else { return };
        if let Some(session) = self.sessions.get_mut(session) {
            session.contexts.remove(&gone.execution_context_id);
        }
    }

    /// A page has come to rest.
    pub(super) fn want_picture(&mut self) {
        self.screenshots.want();
    }

    /// Whether this frame is one of a captcha, and what follows from it.
    pub(super) fn captcha_framed(&mut self, session: &str, frame: &TreeFrame) {
        if self.on.captcha {
            self.note_captcha(session, frame);
        }
    }
}

fn auto_attach(on: bool) -> Value {
    // Service workers come with the browser's own attachment; a page would bring them a second time.
    json!({ "autoAttach": on, "waitForDebuggerOnStart": on, "flatten": true })
}

#[cfg(test)]
mod tests {
    use super::super::fake_browser::{capture, retained_after};
    use super::super::network::{IDLE_AFTER, MAX_REQUESTS};
    use super::*;
    use casement_agent_protocol::telemetry::Category;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).expect("JSON")
    }

    fn attach(capture: &mut Capture, number: usize) {
        let info = json!({ "targetId": format!("t{number}"), "type": "page", "title": "", "url": "about:blank" });
        let reported = json!({ "sessionId": format!("s{number}"), "targetInfo": info, "waitingForDebugger": false });
        capture.notice(None, "Target.attachedToTarget", &raw(&reported), false);
    }

    fn ask_for(capture: &mut Capture, id: usize) {
        let request = json!({ "url": "http://x.test/", "method": "GET", "headers": {} });
        let reported = json!({ "requestId": id.to_string(), "request": request });
        capture.notice(Some("s0"), "Network.requestWillBeSent", &raw(&reported), false);
    }

    fn finish(capture: &mut Capture, id: usize) {
        capture.notice(Some("s0"), "Network.loadingFinished", &raw(&json!({ "requestId": id.to_string() })), false);
    }

    /// A capture of one page.
    async fn of_a_page(categories: &[Category]) -> (Capture, Arc<UnconfirmedEvents>) {
        let (mut capture, buffered) = capture(&[]).await;
        capture.become_on(On::of(categories));
        attach(&mut capture, 0);
        (capture, buffered)
    }

    async fn becomes_idle(capture: &mut Capture, buffered: &Arc<UnconfirmedEvents>, after: u64) {
        tokio::time::sleep(IDLE_AFTER).await;
        capture.idle("s0");
        assert_eq!(retained_after(buffered, after).await["type"], "network_idle");
    }

    #[tokio::test]
    async fn requests_that_are_forgotten_do_not_keep_a_page_from_being_idle() {
        let (mut capture, buffered) = of_a_page(&[Category::Network]).await;
        ask_for(&mut capture, 1);
        capture.become_on(On::of(&[Category::Console]));
        capture.become_on(On::of(&[Category::Network]));
        ask_for(&mut capture, 2);
        finish(&mut capture, 2);
        becomes_idle(&mut capture, &buffered, 3).await;

        ask_for(&mut capture, 3);
        capture.notice(Some("s0"), "Inspector.targetCrashed", &raw(&json!({})), false);
        becomes_idle(&mut capture, &buffered, 5).await;
    }

    #[tokio::test]
    async fn what_receives_the_user_is_taken_away_and_never_there_twice() {
        let (mut capture, _buffered) = of_a_page(&[Category::Interaction]).await;
        let mut names = 0;
        let mut answered = |capture: &mut Capture| {
            for (id, requested) in std::mem::take(&mut capture.requested) {
                capture.requested.insert(id, requested);
                names += 1;
                capture.answered(id, Some(&raw(&json!({ "identifier": names.to_string() }))));
            }
            capture.wire.sent()
        };
        let count = |sent: &[Value], method: &str| sent.iter().filter(|one| one["method"] == method).count();
        let first = answered(&mut capture);
        assert_eq!((count(&first, "Runtime.addBinding"), count(&first, REMOVE_SCRIPT)), (1, 0));
        for _ in 0..3 {
            capture.become_on(On::of(&[Category::Console]));
            let off = answered(&mut capture);
            let rest = capture.wire.sent();
            // The script itself, and the one that ends it where it runs.
            let removed = count(&off, REMOVE_SCRIPT) + count(&rest, REMOVE_SCRIPT);
            assert_eq!((count(&off, "Runtime.removeBinding"), removed), (1, 2));
            assert!(capture.sessions.get("s0").expect("a page").scripts.is_empty());
            capture.become_on(On::of(&[Category::Interaction]));
            let on = answered(&mut capture);
            assert_eq!((count(&on, "Runtime.addBinding"), count(&on, REMOVE_SCRIPT)), (1, 0));
            assert_eq!(capture.sessions.get("s0").expect("a page").scripts.len(), 1);
        }
        // An answer that comes when nothing is wanted any more.
        capture.become_on(On::of(&[Category::Console]));
        capture.become_on(On::of(&[Category::Interaction]));
        capture.become_on(On::of(&[Category::Console]));
        answered(&mut capture);
        assert!(capture.sessions.get("s0").expect("a page").scripts.is_empty());
    }

    #[tokio::test]
    async fn whatever_is_not_taken_in_is_counted() {
        let (mut capture, buffered) = of_a_page(&[Category::Network, Category::Console]).await;
        for id in 0..=MAX_REQUESTS {
            ask_for(&mut capture, id);
        }
        let reported = MAX_REQUESTS as u64 + 1;
        for (method, params) in [
            ("Network.requestWillBeSent", json!({ "requestId": 1 })),
            ("Network.responseReceived", json!({})),
            ("Network.loadingFailed", json!([])),
            ("Runtime.consoleAPICalled", json!({ "args": 1 })),
            ("Runtime.exceptionThrown", json!({})),
        ] {
            capture.notice(Some("s0"), method, &raw(&params), false);
        }
        for number in 0..=MAX_SESSIONS {
            attach(&mut capture, number);
        }
        buffered.settle();
        // One request's answer, five messages, and the one page too many; the page that was there is told of again and is no loss.
        assert_eq!(retained_after(&buffered, reported).await["seq"], reported + 1 + 5 + 1);
    }

    #[tokio::test]
    async fn a_captcha_that_is_open_at_the_end_was_abandoned() {
        let (mut capture, buffered) = of_a_page(&[Category::Captcha]).await;
        let frame = |id: &str, parent: Value, url: &str| json!({ "frame": { "id": id, "parentId": parent, "loaderId": "l", "url": url } });
        for reported in
            [frame("t0", Value::Null, "https://shop.test/pay"), frame("f", json!("t0"), "https://static.geetest.com/x")]
        {
            capture.notice(Some("s0"), "Page.frameNavigated", &raw(&reported), false);
        }
        let (_requested_state, mut requested_state) =
            watch::channel(CaptureRequest { number: 1, ..CaptureRequest::default() });
        capture.run(&mut requested_state, &watch::Sender::new(0)).await.expect("nothing is wanted");
        let reported = retained_after(&buffered, 0).await;
        assert_eq!(
            (&reported["type"], &reported["data"]["status"]),
            (&json!("captcha_solve_result"), &json!("abandoned"))
        );
    }
}
