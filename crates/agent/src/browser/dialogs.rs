//! Dialogs that pages open with `alert`, `confirm`, `prompt` and before they unload.
//!
//! Without a display a dialog is not visible, and its page waits: it answers no call, cannot be captured, and no
//! further client can attach to it. Only a session that was attached before a dialog opened can answer it, so every
//! page is tracked from its beginning. No dialog is answered automatically, because a client of the caller may want to
//! answer it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{BROWSER_TIMEOUT, Browser, Page};
use crate::cdp::{CdpError, Notice, text};
use casement_agent_protocol::view::OpenDialog;

/// The maximum number of tracked sessions: those of all pages, and those of input devices.
const MAX_SESSIONS: usize = 1024;
/// The maximum number of characters of each text of a page.
const MAX_TEXT: usize = 2000;

/// The page of a session and its open dialog.
#[derive(Debug)]
struct DialogState {
    target: String,
    open: Option<OpenDialog>,
}

/// The open dialogs, by the session that can answer them.
#[derive(Debug)]
pub(super) struct Dialogs {
    sessions: Mutex<HashMap<String, DialogState>>,
    /// The number of changes.
    changes: watch::Sender<u64>,
}

impl Default for Dialogs {
    fn default() -> Self {
        Self { sessions: Mutex::default(), changes: watch::Sender::new(0) }
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
            "Target.detachedFromTarget" => self.remove_session(text(&notice.params["sessionId"])),
            "Target.targetDestroyed" => {
                let target = text(&notice.params["targetId"]);
                let mut sessions = self.lock();
                let before = sessions.len();
                sessions.retain(|_, state| state.target != target);
                before != sessions.len()
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

    pub(super) fn remove_session(&self, session: &str) -> bool {
        self.lock().remove(session).is_some_and(|state| state.open.is_some())
    }

    /// Returns the dialog of a page and the session that can answer it.
    fn of(&self, target: &str) -> Option<(String, OpenDialog)> {
        let sessions = self.lock();
        let mut states = sessions.iter().filter(|(_, state)| state.target == target);
        states.find_map(|(session, state)| Some((session.clone(), state.open.clone()?)))
    }
}

impl Browser {
    /// Tracks the dialogs of all pages, also of later ones.
    pub(crate) async fn track_all_dialogs(&self) -> Result<(), CdpError> {
        self.tracks_dialogs.store(true, Ordering::Relaxed);
        let page = self.probe_page(BROWSER_TIMEOUT).await?;
        self.track_dialogs(&page).await
    }

    /// Tracks the dialogs of a page through its session.
    pub(crate) async fn track_dialogs(&self, page: &Page) -> Result<(), CdpError> {
        self.dialogs.add_session(page);
        self.cdp.send(Some(&page.session), "Page.enable", json!({})).await
    }

    /// Tracks the dialogs of a new page.
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

    /// Returns all open dialogs, one of each page.
    pub(crate) fn open_dialogs(&self) -> Vec<OpenDialog> {
        let sessions = self.dialogs.lock();
        let mut open: Vec<OpenDialog> = sessions.values().filter_map(|state| state.open.clone()).collect();
        open.sort_by(|one, other| one.page.cmp(&other.page));
        open.dedup_by(|one, other| one.page == other.page);
        open
    }

    /// Subscribes to the number of changes.
    pub(crate) fn dialog_changes(&self) -> watch::Receiver<u64> {
        self.dialogs.changes.subscribe()
    }

    /// Waits until the page has an open dialog.
    pub(crate) async fn dialog_opens(&self, target: &str) -> OpenDialog {
        let mut changes = self.dialogs.changes.subscribe();
        loop {
            if let Some(open) = self.dialog_of(target) {
                return open;
            }
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
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
