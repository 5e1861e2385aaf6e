//! The tab in which somebody logs in: a debugging connection of its own to the page and all frames in it, and what was heard there.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::cdp::{Cdp, CdpError, Endpoint, Notice, text};

/// Deadline of a call that does not wait for a page's scripts.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests on their way that are remembered.
const MAX_REQUESTS: usize = 300;
/// Frames with processes of their own that are attached.
const MAX_SESSIONS: usize = 40;
/// Windows that stay open beside the page.
const MAX_WINDOWS: usize = 3;
/// For how long after a click a window that opens is what the click opened.
const OPENED_BY_CLICK: Duration = Duration::from_secs(5);
/// Something that is loaded for so long does not hold up the reading of a page.
const SLOW_DATA: Duration = Duration::from_secs(5);
const SLOW_PAGE: Duration = Duration::from_secs(20);
/// What was sent may change everything once it is answered: nothing else that is asked for without end is waited for so long.
const SLOW_ANSWER: Duration = Duration::from_secs(60);
/// The words of a dialog that are kept.
const DIALOG_TEXT: usize = 400;

/// An attached page or frame.
#[derive(Debug, Clone)]
pub(super) struct Attached {
    /// Its session.
    pub(super) session: String,
    /// The page, or the frame's id.
    pub(super) target: String,
    /// In the session of whom it stands; `None` for a page.
    pub(super) parent: Option<String>,
}

#[derive(Debug)]
struct Request {
    /// For which frame.
    frame: String,
    since: Instant,
    slow: Duration,
}

/// What was heard.
#[derive(Debug, Default)]
struct TabEvent {
    /// The page that was opened.
    main: Option<Attached>,
    /// Windows that it opened as a part of the login, oldest first.
    windows: Vec<Attached>,
    /// Frames with processes of their own.
    frames: Vec<Attached>,
    /// Windows that are being attached to.
    expected: HashSet<String>,
    requests: HashMap<(String, String), Request>,
    /// When something was heard last of what makes a page another one.
    last: Option<Instant>,
    /// When something was pressed last, and whether a window was to open.
    clicked: Option<(Instant, bool)>,
    /// What dialogs said since the document began.
    dialogs: Vec<String>,
    /// Why a document did not come, by session.
    failed: HashMap<String, String>,
    gone: bool,
}

/// The tab.
#[derive(Debug)]
pub(super) struct Tab {
    pub(super) cdp: Arc<Cdp>,
    received: Arc<Mutex<TabEvent>>,
    changed: watch::Sender<u64>,
    _heeds: AbortOnDropHandle<()>,
}

impl Tab {
    /// Attaches to the page `target`.
    pub(super) async fn attach(endpoint: &Endpoint, target: &str) -> Result<Self, CdpError> {
        let (cdp, notices) = Cdp::connect_within(endpoint, CALL_TIMEOUT).await?;
        let cdp = Arc::new(cdp);
        let received = Arc::new(Mutex::new(TabEvent::default()));
        let changed = watch::Sender::new(0);
        let heeds = tokio::spawn(heed(Arc::downgrade(&cdp), Arc::clone(&received), changed.clone(), notices));
        let tab = Self { cdp, received, changed, _heeds: AbortOnDropHandle::new(heeds) };
        let session = attach(&tab.cdp, target).await?;
        tab.lock().main = Some(Attached { session, target: target.to_owned(), parent: None });
        let pages = json!({ "discover": true, "filter": [{ "type": "page" }] });
        tab.cdp.call(None, "Target.setDiscoverTargets", pages, CALL_TIMEOUT).await?;
        Ok(tab)
    }

    fn lock(&self) -> MutexGuard<'_, TabEvent> {
        lock(&self.received)
    }

    /// Whether the page, or the browser, is gone.
    pub(super) fn is_gone(&self) -> bool {
        let received = self.lock();
        received.gone || received.main.is_none()
    }

    /// The page in which the login goes on: the window that was opened last, else the page.
    pub(super) fn page(&self) -> Result<Attached, CdpError> {
        let received = self.lock();
        received.windows.last().or(received.main.as_ref()).cloned().ok_or(CdpError::Closed)
    }

    /// The page and the frames in it that have processes of their own, each after what it stands in.
    pub(super) fn attached(&self, page: &Attached) -> Vec<Attached> {
        let received = self.lock();
        let mut all = vec![page.clone()];
        let mut at = 0;
        while let Some(parent) = all.get(at).map(|one| one.session.clone()) {
            all.extend(received.frames.iter().filter(|frame| frame.parent.as_deref() == Some(&parent)).cloned());
            at += 1;
        }
        all
    }

    /// Something is about to be pressed.
    pub(super) fn will_click(&self, window: bool) {
        let mut received = self.lock();
        received.clicked = Some((Instant::now(), window));
        received.last = Some(Instant::now());
    }

    /// A document is about to be replaced.
    pub(super) fn begin_navigation(&self) {
        let mut received = self.lock();
        received.dialogs.clear();
        received.failed.clear();
        received.requests.clear();
        received.last = Some(Instant::now());
    }

    /// What dialogs said since the document began.
    pub(super) fn dialogs(&self) -> Vec<String> {
        self.lock().dialogs.clone()
    }

    /// Why there is no document.
    pub(super) fn failed(&self, page: &Attached) -> Option<String> {
        self.lock().failed.get(&page.session).cloned()
    }

    /// Counts what is heard.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// From when on nothing was heard any more that makes a page another one; `None` while something is on its way.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut received = self.lock();
        received.requests.retain(|_, request| now < request.since + request.slow);
        received.requests.is_empty().then(|| received.last.unwrap_or(now))
    }

    /// When the next thing on its way stops to count.
    pub(super) fn next_given_up(&self) -> Option<Instant> {
        self.lock().requests.values().map(|request| request.since + request.slow).min()
    }
}

fn lock(received: &Mutex<TabEvent>) -> MutexGuard<'_, TabEvent> {
    received.lock()
}

async fn attach(cdp: &Cdp, target: &str) -> Result<String, CdpError> {
    let session = cdp.attach(target, CALL_TIMEOUT).await?;
    set_up(cdp, &session).await?;
    Ok(session)
}

/// What a page or a frame is to tell.
async fn set_up(cdp: &Cdp, session: &str) -> Result<(), CdpError> {
    let frames = json!({
        "autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true, "filter": [{ "type": "iframe" }],
    });
    // No bytes of what is sent are kept for us, and nothing of what is posted.
    let network = json!({ "maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0 });
    cdp.send(Some(session), "Page.enable", json!({})).await?;
    cdp.send(Some(session), "Network.enable", network).await?;
    // The profile brings service workers and a cache that others may have filled: what a site is, its own server says.
    cdp.send(Some(session), "Network.setBypassServiceWorker", json!({ "bypass": true })).await?;
    cdp.send(Some(session), "Network.setCacheDisabled", json!({ "cacheDisabled": true })).await?;
    cdp.send(Some(session), "Target.setAutoAttach", frames).await
}

async fn heed(
    cdp: Weak<Cdp>,
    received: Arc<Mutex<TabEvent>>,
    changed: watch::Sender<u64>,
    mut notices: mpsc::Receiver<Notice>,
) {
    while let Some(notice) = notices.recv().await {
        let Some(cdp) = cdp.upgrade() else { return };
        let todo = lock(&received).heed(&notice);
        changed.send_modify(|count| *count += 1);
        match todo {
            Some(Todo::SetUp(session)) => drop(set_up(&cdp, &session).await),
            Some(Todo::Answer { session, agree }) => {
                let answer = json!({ "accept": agree });
                drop(cdp.send(Some(&session), "Page.handleJavaScriptDialog", answer).await);
            }
            Some(Todo::Close(target)) => {
                drop(cdp.send(None, "Target.closeTarget", json!({ "targetId": target })).await);
            }
            Some(Todo::Adopt(target)) => {
                // The answers of these calls come over another task, so that waiting here holds up only what is told.
                let (received, changed) = (Arc::clone(&received), changed.clone());
                tokio::spawn(async move {
                    if let Ok(session) = attach(&cdp, &target).await {
                        lock(&received).adopt(Attached { session, target, parent: None });
                        changed.send_modify(|count| *count += 1);
                    }
                });
            }
            None => {}
        }
    }
    lock(&received).gone = true;
    changed.send_modify(|count| *count += 1);
}

/// What follows from what was heard.
enum Todo {
    SetUp(String),
    Answer { session: String, agree: bool },
    Close(String),
    Adopt(String),
}

impl TabEvent {
    fn heed(&mut self, notice: &Notice) -> Option<Todo> {
        let (params, session) = (&notice.params, notice.session.clone().unwrap_or_default());
        match notice.method.as_str() {
            "Target.attachedToTarget" => return self.frame_attached(&session, params),
            "Target.detachedFromTarget" => self.detached(text(&params["sessionId"])),
            "Target.targetCreated" => return self.window_opened(&params["targetInfo"]),
            "Target.targetDestroyed" => self.destroyed(text(&params["targetId"])),
            "Page.javascriptDialogOpening" => {
                let kind = text(&params["type"]);
                if kind != "beforeunload" && self.dialogs.len() < 5 {
                    self.dialogs.push(text(&params["message"]).chars().take(DIALOG_TEXT).collect());
                }
                return Some(Todo::Answer { session, agree: matches!(kind, "alert" | "beforeunload") });
            }
            "Page.frameNavigated" | "Page.navigatedWithinDocument" => {
                if notice.method == "Page.frameNavigated" && params["frame"]["parentId"].is_null() {
                    self.failed.remove(&session);
                }
                self.last = Some(Instant::now());
            }
            "Page.frameDetached" => self.forget_frame(text(&params["frameId"])),
            "Network.requestWillBeSent" => self.request_sent(session, params),
            "Network.loadingFinished" | "Network.loadingFailed" => self.request_ended(session, notice),
            _ => {}
        }
        None
    }

    fn frame_attached(&mut self, parent: &str, params: &Value) -> Option<Todo> {
        if text(&params["targetInfo"]["type"]) != "iframe" || self.frames.len() >= MAX_SESSIONS {
            return None;
        }
        let (session, target) =
            (text(&params["sessionId"]).to_owned(), text(&params["targetInfo"]["targetId"]).to_owned());
        // Its document came in a process of its own: the end of that is not told where it began.
        self.forget_frame(&target);
        self.frames.push(Attached { session: session.clone(), target, parent: Some(parent.to_owned()) });
        self.last = Some(Instant::now());
        Some(Todo::SetUp(session))
    }

    /// Nothing that was asked for a frame is waited for any more.
    fn forget_frame(&mut self, frame: &str) {
        let before = self.requests.len();
        self.requests.retain(|_, request| request.frame != frame);
        if self.requests.len() != before {
            self.last = Some(Instant::now());
        }
    }

    fn detached(&mut self, session: &str) {
        let is = |one: &Attached| one.session == session;
        self.frames.retain(|frame| !is(frame));
        self.windows.retain(|window| !is(window));
        self.main.take_if(|main| is(main));
        self.requests.retain(|(of, _), _| of != session);
        self.last = Some(Instant::now());
    }

    /// A window that the login opens is a part of it; any other has no business here.
    fn window_opened(&mut self, info: &Value) -> Option<Todo> {
        let (target, opener) = (text(&info["targetId"]), text(&info["openerId"]));
        let ours = self.main.iter().chain(&self.windows).any(|page| page.target == opener);
        if !ours || opener.is_empty() || text(&info["type"]) != "page" || self.expected.contains(target) {
            return None;
        }
        let just = self.clicked.filter(|(when, _)| when.elapsed() < OPENED_BY_CLICK);
        let room = self.windows.len() + self.expected.len() < MAX_WINDOWS;
        // With no click of ours before it, it is a person who pressed something.
        if !room || just.is_some_and(|(_, window)| !window) {
            return Some(Todo::Close(target.to_owned()));
        }
        self.clicked = just.map(|(when, _)| (when, false));
        self.expected.insert(target.to_owned());
        self.last = Some(Instant::now());
        Some(Todo::Adopt(target.to_owned()))
    }

    fn adopt(&mut self, window: Attached) {
        if self.expected.remove(&window.target) {
            self.windows.push(window);
            self.last = Some(Instant::now());
        }
    }

    fn destroyed(&mut self, target: &str) {
        self.expected.remove(target);
        self.windows.retain(|window| window.target != target);
        self.main.take_if(|main| main.target == target);
        self.last = Some(Instant::now());
    }

    fn request_sent(&mut self, session: String, params: &Value) {
        let is_sent = matches!(text(&params["request"]["method"]), "POST" | "PUT" | "PATCH");
        let slow = match text(&params["type"]) {
            "Document" | "XHR" | "Fetch" if is_sent => SLOW_ANSWER,
            "Document" => SLOW_PAGE,
            "XHR" | "Fetch" | "Script" | "Stylesheet" => SLOW_DATA,
            _ => return,
        };
        let now = Instant::now();
        self.last = Some(now);
        if self.requests.len() < MAX_REQUESTS {
            let id = text(&params["requestId"]).to_owned();
            self.requests
                .insert((session, id), Request { frame: text(&params["frameId"]).to_owned(), since: now, slow });
        }
    }

    fn request_ended(&mut self, session: String, notice: &Notice) {
        let failed = notice.method == "Network.loadingFailed" && notice.params["type"] == "Document";
        if failed && notice.params["canceled"] != true && self.failed.len() < MAX_SESSIONS {
            self.failed.insert(session.clone(), text(&notice.params["errorText"]).chars().take(200).collect());
        }
        if self.requests.remove(&(session, text(&notice.params["requestId"]).to_owned())).is_some() {
            self.last = Some(Instant::now());
        }
    }
}
