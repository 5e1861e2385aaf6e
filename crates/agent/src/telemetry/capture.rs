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
use super::kept::Kept;
use super::network::{KEPT_BODIES, KEPT_BODY, MAX_POST, Request, Requests};
use super::page::TreeFrame;
use super::session::{Kind, Session, Sessions, TargetInfo};
use super::shots::Shots;
use super::strain::Strained;
use super::system::{Phase, crashed};
use super::wire::Wire;
use super::{On, Wish, event};

/// Pages, frames and workers attached at once. Those beyond are let go, and not captured.
const MOST_SESSIONS: usize = 1000;
/// Questions of new pages that a change of what is wanted waits for.
const MOST_SETTLING: usize = 20 * MOST_SESSIONS;
/// Messages that are taken in before anything else has its turn.
const BATCH: usize = 256;
/// How long after a loss it is said, if nothing else is told meanwhile.
const GAP: Duration = Duration::from_millis(500);

/// What is captured of one life of the browser.
pub(super) struct Capture {
    wire: Wire,
    next: u64,
    /// By its number: of which session it is asked, the empty one being the browser itself, and for what.
    asked: HashMap<u64, (String, Asked)>,
    pub(super) on: On,
    pub(super) kept: Arc<Kept>,
    pub(super) sessions: Sessions,
    pub(super) requests: Requests,
    pub(super) captchas: Captchas,
    pub(super) shots: Shots,
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
pub(super) enum Asked {
    /// The pages that were open are attached.
    Begun,
    Frames {
        session: String,
    },
    Body {
        session: String,
        id: String,
        request: Box<Request>,
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
    pub(super) async fn connect(port: u16, path: &str, kept: Arc<Kept>, shots: Shots) -> io::Result<Self> {
        let wire = Wire::connect(port, path).await?;
        Ok(Self {
            wire,
            next: 1,
            asked: HashMap::new(),
            on: On::default(),
            kept,
            sessions: Sessions::default(),
            requests: Requests::default(),
            captchas: Captchas::default(),
            shots,
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
        wish: &mut watch::Receiver<Wish>,
        applied: &watch::Sender<u64>,
    ) -> io::Result<()> {
        let mut pictures = self.shots.done();
        loop {
            let wanted = wish.borrow_and_update().clone();
            if !wanted.on.any() {
                return Ok(());
            }
            self.settled = Some(wanted.number);
            // Whatever was not answered by now may never be.
            self.settling.clear();
            self.become_on(wanted.on);
            while !wish.has_changed().unwrap_or(true) {
                self.take_in()?;
                self.wire.flush().await?;
                if self.settling.is_empty()
                    && let Some(number) = self.settled.take()
                {
                    applied.send_replace(number);
                }
                self.wait(wish, &mut pictures).await?;
            }
        }
    }

    /// Waits for whatever comes next.
    async fn wait(
        &mut self,
        wish: &mut watch::Receiver<Wish>,
        pictures: &mut mpsc::Receiver<Vec<u8>>,
    ) -> io::Result<()> {
        let far = Instant::now() + Duration::from_secs(3600);
        let timer = self.timers.next().unwrap_or(far).min(self.shots.next().unwrap_or(far));
        tokio::select! {
            more = self.wire.more() => more?,
            () = tokio::time::sleep_until(timer) => {}
            Some(png) = pictures.recv() => self.shots.taken(png, &self.kept),
            _ = wish.changed() => wish.mark_changed(),
        }
        while let Some(timer) = self.timers.due() {
            match timer {
                Timer::Idle(session) => self.idle(&session),
                Timer::Settled(session) => self.layout_settled(&session),
                Timer::Captchas => self.look_at_captchas(),
                Timer::Gap => {
                    self.loses = false;
                    self.kept.settle();
                    self.let_all_go();
                }
            }
        }
        self.shots.tick();
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

    fn heed(&mut self, message: &Strained) {
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

    /// Something was told that could not be taken in.
    fn lose(&mut self) {
        self.kept.lose();
        if !std::mem::replace(&mut self.loses, true) {
            self.timers.set(Instant::now() + GAP, Timer::Gap);
        }
    }

    fn answered(&mut self, id: u64, result: Option<&RawValue>) {
        self.settling.remove(&id);
        match (self.asked.remove(&id).map(|(_, asked)| asked), result) {
            (Some(Asked::Begun), Some(_)) => self.begun = true,
            (Some(Asked::Begun), None) => self.not_begun(),
            (Some(Asked::Frames { session }), Some(result)) => self.frames_told(&session, result),
            (Some(Asked::Body { session, id, request }), result) => self.body_arrived(&session, &id, &request, result),
            (Some(Asked::CaptchaWorld { frame }), result) => self.captcha_world(&frame, result),
            (Some(Asked::CaptchaToken { frame }), result) => self.captcha_token(&frame, result),
            (Some(Asked::Frames { .. }) | None, _) => {}
        }
    }

    /// The browser does not let itself be listened to.
    fn not_begun(&self) {
        if self.on.monitor() {
            self.kept.add(&super::monitor("monitor_init_failed").with("step", "Target.setAutoAttach"));
        }
    }

    fn notice(&mut self, session: Option<&str>, method: &str, params: &RawValue, cut: bool) {
        match method {
            "Target.attachedToTarget" => self.attached(session, params),
            "Target.detachedFromTarget" => self.detached(params),
            "Target.targetCrashed" => self.page_crashed(),
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
    pub(super) fn tell(&mut self, session: Option<&str>, method: &str, params: Value) {
        self.post(session, method, params);
    }

    /// Calls a method whose answer is for something.
    pub(super) fn ask(&mut self, session: Option<&str>, method: &str, params: Value, asked: Asked) {
        let id = self.post(session, method, params);
        self.asked.insert(id, (session.unwrap_or_default().to_owned(), asked));
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
        if on.console && !before.console {
            self.console_since = event::now() as f64 / 1000.0;
        }
        let from = self.next;
        if on.system && !before.system {
            let filter = json!([{ "type": "page" }, { "type": "iframe" }, { "type": "service_worker" }]);
            self.tell(None, "Target.setDiscoverTargets", json!({ "discover": true, "filter": filter }));
        }
        if !on.system && before.system {
            self.tell(None, "Target.setDiscoverTargets", json!({ "discover": false }));
        }
        if on.attaches() && !before.attaches() {
            self.begun = false;
            self.ask(None, "Target.setAutoAttach", auto_attach(true), Asked::Begun);
        }
        if !on.attaches() && before.attaches() {
            self.tell(None, "Target.setAutoAttach", auto_attach(false));
        }
        let sessions: Vec<(String, Kind)> = self.sessions.0.values().map(|one| (one.id.clone(), one.kind)).collect();
        for (session, kind) in sessions {
            self.set_up(&session, kind, before);
        }
        if !on.network {
            self.requests.clear();
        }
        if !on.captcha {
            self.captchas.clear();
        }
        self.shots.turn(on.screenshot);
        self.settling.extend(from..self.next);
    }

    /// Tells a session what to say, if that is not what it says already.
    fn set_up(&mut self, session: &str, kind: Kind, before: On) {
        let on = self.on;
        let at = Some(session);
        if on.console != before.console {
            self.tell(at, if on.console { "Runtime.enable" } else { "Runtime.disable" }, json!({}));
        }
        if on.network != before.network {
            let bounds = json!({
                "maxTotalBufferSize": KEPT_BODIES, "maxResourceBufferSize": KEPT_BODY, "maxPostDataSize": MAX_POST,
            });
            self.tell(at, if on.network { "Network.enable" } else { "Network.disable" }, bounds);
        }
        if kind.shows() && on.page != before.page {
            let kinds = if on.page { json!(["layout-shift", "largest-contentful-paint"]) } else { json!([]) };
            self.tell(at, "PerformanceTimeline.enable", json!({ "eventTypes": kinds }));
        }
        if kind.shows() && on.interaction && !before.interaction {
            self.tell(at, "Runtime.addBinding", json!({ "name": BINDING, "executionContextName": WORLD }));
            let script = json!({ "source": interaction::SCRIPT, "worldName": WORLD, "runImmediately": true });
            self.tell(at, "Page.addScriptToEvaluateOnNewDocument", script);
        }
    }

    fn attached(&mut self, parent: Option<&str>, params: &RawValue) {
        let Ok(attached) = serde_json::from_str::<Attached>(params.get()) else { return };
        let Attached { session_id: id, target_info: info, waiting_for_debugger: waiting } = attached;
        let kind = Kind::of(&info.kind);
        let is_new = !self.sessions.0.values().any(|one| one.target == info.target_id);
        let (Some(kind), true) = (kind, is_new && self.sessions.0.len() < MOST_SESSIONS) else {
            if waiting {
                self.tell(Some(&id), "Runtime.runIfWaitingForDebugger", json!({}));
            }
            self.tell(parent, "Target.detachFromTarget", json!({ "sessionId": id }));
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
            self.tell(Some(&id), "Page.enable", json!({}));
        }
        self.set_up(&id, kind, On::default());
        // What is not made for it refuses it, and goes on.
        self.tell(Some(&id), "Target.setAutoAttach", auto_attach(true));
        if kind.shows() && !waiting {
            self.ask(Some(&id), "Page.getFrameTree", json!({}), Asked::Frames { session: id.clone() });
        }
        if waiting {
            self.tell(Some(&id), "Runtime.runIfWaitingForDebugger", json!({}));
        }
        // Those that come and go without an answer are not waited for without end.
        if self.settled.is_some() && self.settling.len() < MOST_SETTLING {
            self.settling.extend(from..self.next);
        }
    }

    fn detached(&mut self, params: &RawValue) {
        let Ok(Detached { session_id: id }) = serde_json::from_str::<Detached>(params.get()) else { return };
        // Nobody answers any more what was asked there.
        let of_it = |asked: &mut (String, Asked)| asked.0 == id;
        let unanswered: Vec<Asked> =
            self.asked.extract_if(|_, asked| of_it(asked)).map(|(_, (_, asked))| asked).collect();
        for asked in unanswered {
            match asked {
                Asked::Body { session, id, request } => self.body_arrived(&session, &id, &request, None),
                Asked::CaptchaWorld { frame } => self.captcha_world(&frame, None),
                Asked::CaptchaToken { frame } => self.captcha_token(&frame, None),
                Asked::Frames { .. } | Asked::Begun => {}
            }
        }
        let lost = self.requests.forget(&id);
        self.landed(&id, lost);
        self.captchas_of_session_end(&id);
        self.sessions.0.remove(&id);
    }

    fn page_crashed(&self) {
        if self.on.system {
            self.kept.add(&crashed("chromium-renderer", Phase::Running, None).with_word("Target.targetCrashed"));
        }
    }

    fn context_made(&mut self, session: &str, params: &RawValue) {
        let Ok(Context { context }) = serde_json::from_str::<Context>(params.get()) else { return };
        if let Some(session) = self.sessions.get_mut(session) {
            session.remember_context(context.id, context.aux_data.frame_id);
        }
    }

    fn context_gone(&mut self, session: &str, params: &RawValue) {
        let Ok(gone) = serde_json::from_str::<Destroyed>(params.get()) else { return };
        if let Some(session) = self.sessions.get_mut(session) {
            session.contexts.remove(&gone.execution_context_id);
        }
    }

    /// A page has come to rest.
    pub(super) fn want_picture(&mut self) {
        self.shots.want();
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
