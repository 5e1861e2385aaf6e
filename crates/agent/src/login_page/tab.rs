//! The tab of a login: a debugging connection of its own to the page and its frames, and the state from their notices.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::cdp::{Cdp, CdpError, Endpoint, Notice, text};

/// The timeout of a call that does not wait for a page's scripts.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of tracked pending requests.
const MAX_REQUESTS: usize = 300;
/// The maximum number of attached frames with processes of their own.
const MAX_SESSIONS: usize = 40;
/// The maximum number of open windows in addition to the page.
const MAX_WINDOWS: usize = 3;
/// The time after a click in which a new window counts as opened by the click.
const OPENED_BY_CLICK: Duration = Duration::from_secs(5);
/// The times after which a pending request no longer delays the reading of a page: for data or scripts, for a document.
const SLOW_DATA: Duration = Duration::from_secs(5);
const SLOW_PAGE: Duration = Duration::from_secs(20);
/// The same time for a request that submits data. It is longer, because the response may change the whole page.
const SLOW_ANSWER: Duration = Duration::from_secs(60);
/// The maximum length of a stored dialog message, in characters.
const DIALOG_TEXT: usize = 400;

/// An attached page or frame.
#[derive(Debug, Clone)]
pub(super) struct Attached {
    /// The debugging session.
    pub(super) session: String,
    /// The target id of the page or the frame.
    pub(super) target: String,
    /// The debugging session of the target that contains the frame; `None` for a page.
    pub(super) parent: Option<String>,
}

#[derive(Debug)]
struct Request {
    /// The frame that sent the request.
    frame: String,
    since: Instant,
    slow: Duration,
}

/// The state of the tab, from the browser's notices.
#[derive(Debug, Default)]
struct TabEvent {
    /// The page of the tab.
    main: Option<Attached>,
    /// The windows that the page opened as a part of the login, oldest first.
    windows: Vec<Attached>,
    /// The frames with processes of their own.
    frames: Vec<Attached>,
    /// The target ids of the windows to which the tab is attaching.
    expected: HashSet<String>,
    requests: HashMap<(String, String), Request>,
    /// The time of the last notice that may change the page.
    last: Option<Instant>,
    /// The time of the last click or key press, and true if it is expected to open a window.
    clicked: Option<(Instant, bool)>,
    /// The messages of the dialogs since the last navigation by the login.
    dialogs: Vec<String>,
    /// The load errors of documents, by debugging session.
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

    /// Returns true if the page was closed or the connection to the browser has ended.
    pub(super) fn is_gone(&self) -> bool {
        let received = self.lock();
        received.gone || received.main.is_none()
    }

    /// Returns the page in which the login continues: the last opened window, or else the page of the tab.
    pub(super) fn page(&self) -> Result<Attached, CdpError> {
        let received = self.lock();
        received.windows.last().or(received.main.as_ref()).cloned().ok_or(CdpError::Closed)
    }

    /// Returns the page and its frames with processes of their own. Each frame follows its parent.
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

    /// Records that a click or a key press follows, which opens a window if `window` is true.
    pub(super) fn will_click(&self, window: bool) {
        let mut received = self.lock();
        received.clicked = Some((Instant::now(), window));
        received.last = Some(Instant::now());
    }

    /// Resets the state before a navigation.
    pub(super) fn begin_navigation(&self) {
        let mut received = self.lock();
        received.dialogs.clear();
        received.failed.clear();
        received.requests.clear();
        received.last = Some(Instant::now());
    }

    /// Returns the messages of the dialogs since the last navigation by the login.
    pub(super) fn dialogs(&self) -> Vec<String> {
        self.lock().dialogs.clone()
    }

    /// Returns the load error of the page's document.
    pub(super) fn failed(&self, page: &Attached) -> Option<String> {
        self.lock().failed.get(&page.session).cloned()
    }

    /// Returns the number of notices, which changes with each notice.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns the time of the last notice that may change the page; `None` while a request is pending.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut received = self.lock();
        received.requests.retain(|_, request| now < request.since + request.slow);
        received.requests.is_empty().then(|| received.last.unwrap_or(now))
    }

    /// Returns the time when the next pending request stops delaying the reading.
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

/// Enables the notices of a page or a frame.
async fn set_up(cdp: &Cdp, session: &str) -> Result<(), CdpError> {
    let frames = json!({
        "autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true, "filter": [{ "type": "iframe" }],
    });
    // The browser stores no bodies of requests and responses for this connection.
    let network = json!({ "maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0 });
    cdp.send(Some(session), "Page.enable", json!({})).await?;
    cdp.send(Some(session), "Network.enable", network).await?;
    // Others may have filled the cache and the service workers of the profile. The page must come from its own server.
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
                // A separate task waits for the replies, so that further notices are not delayed.
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

/// The reaction to a notice.
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
        // The document moved to a process of its own. The session that sent its request does not report the end.
        self.forget_frame(&target);
        self.frames.push(Attached { session: session.clone(), target, parent: Some(parent.to_owned()) });
        self.last = Some(Instant::now());
        Some(Todo::SetUp(session))
    }

    /// Removes the pending requests of a frame.
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

    /// Adopts a window that a page of the login opens, or closes it if it was not expected. Ignores other windows.
    fn window_opened(&mut self, info: &Value) -> Option<Todo> {
        let (target, opener) = (text(&info["targetId"]), text(&info["openerId"]));
        let ours = self.main.iter().chain(&self.windows).any(|page| page.target == opener);
        if !ours || opener.is_empty() || text(&info["type"]) != "page" || self.expected.contains(target) {
            return None;
        }
        let just = self.clicked.filter(|(when, _)| when.elapsed() < OPENED_BY_CLICK);
        let room = self.windows.len() + self.expected.len() < MAX_WINDOWS;
        // Without a recent click by the login, a person has opened the window.
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
