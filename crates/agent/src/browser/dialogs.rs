//! What blocks pages: the dialogs of `alert`, `confirm` and `prompt` and before a page unloads, print previews, and
//! crashes of renderers.
//!
//! A page with a dialog waits: it answers no call, cannot be captured, and no further client can attach to it. Only a
//! session that was attached before a dialog opened can answer it, so every page is tracked from its beginning. No
//! dialog is answered automatically, because a client of the caller may want to answer it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{BROWSER_TIMEOUT, Browser, Page};
use crate::cdp::{CdpError, Notice, text};
use casement_agent_protocol::view::OpenDialog;

/// The maximum number of tracked sessions: those of all pages, and those of input devices.
const MAX_SESSIONS: usize = 1024;
/// The page of a print preview, which exists as long as the preview. Chromium does not say which page it prints.
const PRINT_PREVIEW: &str = "chrome://print/";
/// What operations say about a page whose renderer has crashed.
const CRASHED: &str = "the page has crashed: reload it, open another URL in it, or use another tab";
/// The maximum number of characters of each text of a page.
const MAX_TEXT: usize = 2000;

/// The page of a session and its open dialog.
#[derive(Debug)]
struct DialogState {
    target: String,
    open: Option<OpenDialog>,
}

/// The open dialogs and the crashed pages.
#[derive(Debug)]
pub(super) struct Dialogs {
    /// The dialogs, by the session that can answer them.
    sessions: Mutex<HashMap<String, DialogState>>,
    /// The targets of open print previews.
    previews: Mutex<BTreeSet<String>>,
    /// The targets whose renderer has crashed and that were not loaded again.
    crashed: Mutex<BTreeSet<String>>,
    /// The number of changes.
    changes: watch::Sender<u64>,
}

impl Default for Dialogs {
    fn default() -> Self {
        let (sessions, previews, crashed) = Default::default();
        Self { sessions, previews, crashed, changes: watch::Sender::new(0) }
    }
}

impl Dialogs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, DialogState>> {
        self.sessions.lock()
    }

    fn add_session(&self, page: &Page) {
        let mut sessions = self.lock();
        if sessions.len() < MAX_SESSIONS {
            let state = || DialogState { target: page.target.clone(), open: None };
            sessions.entry(page.session.clone()).or_insert_with(state);
        }
    }

    fn is_tracked(&self, target: &str) -> bool {
        self.lock().values().any(|state| state.target == target)
    }

    /// Handles a notice of the browser.
    pub(super) fn handle(&self, notice: &Notice) {
        let changed = match notice.method.as_str() {
            "Page.javascriptDialogOpening" => self.set(notice, Some(&notice.params)),
            "Page.javascriptDialogClosed" => self.set(notice, None),
            "Target.detachedFromTarget" => self.lock().remove(text(&notice.params["sessionId"])).is_some(),
            "Target.targetCrashed" => add_target(&self.crashed, &notice.params["targetId"]),
            "Inspector.targetReloadedAfterCrash" => {
                let sessions = self.lock();
                let state = notice.session.as_ref().and_then(|session| sessions.get(session));
                state.is_some_and(|state| self.crashed.lock().remove(&state.target))
            }
            "Target.targetInfoChanged" if is_print_preview(&notice.params["targetInfo"]) => {
                add_target(&self.previews, &notice.params["targetInfo"]["targetId"])
            }
            "Target.targetDestroyed" => {
                let target = text(&notice.params["targetId"]);
                let mut sessions = self.lock();
                let before = sessions.len();
                sessions.retain(|_, state| state.target != target);
                let (had_crashed, was_preview) =
                    (self.crashed.lock().remove(target), self.previews.lock().remove(target));
                before != sessions.len() || had_crashed || was_preview
            }
            _ => false,
        };
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn set(&self, notice: &Notice, params: Option<&Value>) -> bool {
        let mut all = self.lock();
        let Some(state) = notice.session.as_ref().and_then(|session| all.get_mut(session)) else { return false };
        let shortened = |value: &Value| text(value).chars().take(MAX_TEXT).collect();
        state.open = params.map(|params| OpenDialog {
            page: state.target.clone(),
            kind: shortened(&params["type"]),
            message: shortened(&params["message"]),
            default_text: shortened(&params["defaultPrompt"]),
            url: shortened(&params["url"]),
        });
        true
    }

    pub(super) fn remove_session(&self, session: &str) {
        self.lock().remove(session);
    }

    /// Returns the dialog of a page and the session that can answer it.
    fn of(&self, target: &str) -> Option<(String, OpenDialog)> {
        let sessions = self.lock();
        let mut states = sessions.iter().filter(|(_, state)| state.target == target);
        states.find_map(|(session, state)| Some((session.clone(), state.open.clone()?)))
    }
}

/// Adds a target; returns false if it is known, or if there are too many.
fn add_target(targets: &Mutex<BTreeSet<String>>, target: &Value) -> bool {
    let mut targets = targets.lock();
    targets.len() < MAX_SESSIONS && targets.insert(text(target).to_owned())
}

/// Returns true for the target of a print preview.
pub(super) fn is_print_preview(info: &Value) -> bool {
    info["type"] == "page" && text(&info["url"]).starts_with(PRINT_PREVIEW)
}

impl Browser {
    /// Tracks the dialogs and crashes of a page through its session.
    pub(crate) async fn track_dialogs(&self, page: &Page) -> Result<(), CdpError> {
        self.dialogs.add_session(page);
        self.cdp.send(Some(&page.session), "Inspector.enable", json!({})).await?;
        self.cdp.send(Some(&page.session), "Page.enable", json!({})).await
    }

    /// Tracks the dialogs and crashes of a new page.
    pub(super) async fn track_new_page(self: Arc<Self>, target: String) {
        if self.dialogs.is_tracked(&target) {
            return;
        }
        // The page may have closed already.
        if let Ok(page) = self.attach(target, BROWSER_TIMEOUT).await {
            drop(self.track_dialogs(&page).await);
        }
    }

    /// Returns true if the page has an open dialog.
    pub(crate) fn has_dialog(&self, page: &Page) -> bool {
        self.dialog_of(&page.target).is_some()
    }

    /// Returns the open dialog of a page.
    pub(crate) fn dialog_of(&self, target: &str) -> Option<OpenDialog> {
        self.dialogs.of(target).map(|(_, dialog)| dialog)
    }

    /// Returns true if the renderer of the page has crashed, and the page was not loaded again.
    pub(crate) fn has_crashed(&self, target: &str) -> bool {
        self.dialogs.crashed.lock().contains(target)
    }

    /// Returns the error of a page that has crashed.
    pub(crate) fn crash_of(&self, target: &str) -> Option<CdpError> {
        self.has_crashed(target).then(|| CdpError::Blocked(CRASHED.to_owned()))
    }

    /// Returns what keeps a page from answering: a dialog or a crash.
    pub(crate) fn block_of(&self, target: &str) -> Option<CdpError> {
        let dialog = self.dialog_of(target).map(|dialog| CdpError::Blocked(dialog.to_string()));
        dialog.or_else(|| self.crash_of(target))
    }

    /// Waits until something keeps the page from answering.
    pub(crate) async fn blocks(&self, target: &str) -> CdpError {
        let mut changes = self.dialogs.changes.subscribe();
        loop {
            if let Some(block) = self.block_of(target) {
                return block;
            }
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until a tracked page closes; forever for a page that is not tracked.
    pub(crate) async fn closes(&self, page: &Page) {
        let mut changes = self.dialogs.changes.subscribe();
        let is_tracked = || self.dialogs.lock().contains_key(&page.session);
        if !is_tracked() {
            return std::future::pending().await;
        }
        while is_tracked() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns all open dialogs, one of each page, and the print previews.
    pub(crate) fn open_dialogs(&self) -> Vec<OpenDialog> {
        let previews = self.dialogs.previews.lock().clone();
        let sessions = self.dialogs.lock();
        let mut open: Vec<OpenDialog> = sessions.values().filter_map(|state| state.open.clone()).collect();
        open.extend(previews.into_iter().map(|page| OpenDialog {
            page,
            kind: OpenDialog::PRINT.to_owned(),
            message: String::new(),
            default_text: String::new(),
            url: PRINT_PREVIEW.to_owned(),
        }));
        open.sort_by(|one, other| one.page.cmp(&other.page));
        open.dedup_by(|one, other| one.page == other.page);
        open
    }

    /// Subscribes to the number of changes.
    pub(crate) fn dialog_changes(&self) -> watch::Receiver<u64> {
        self.dialogs.changes.subscribe()
    }

    /// Accepts the dialog of a page, with the text if it is a prompt, or dismisses it. Does nothing if none is open.
    pub(crate) async fn answer_dialog(&self, target: &str, accept: bool, text: &str) -> Result<(), CdpError> {
        let Some((session, _)) = self.dialogs.of(target) else { return Ok(()) };
        let answer = json!({ "accept": accept, "promptText": text });
        match self.cdp.call(Some(&session), "Page.handleJavaScriptDialog", answer, BROWSER_TIMEOUT).await {
            // Another client has answered it.
            Err(CdpError::Refused { .. }) => {
                if let Some(state) = self.dialogs.lock().get_mut(&session) {
                    state.open = None;
                }
                Ok(())
            }
            other => other.map(drop),
        }
    }
}
