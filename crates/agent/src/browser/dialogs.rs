//! Dialogs that pages open with `alert`, `confirm`, `prompt` and before they are left. Without a display nobody sees them, and the page
//! waits: it answers no question, is in no picture, and no further client gets at it. So every page is listened to from its beginning: only
//! who listened before a dialog opened can answer it. Nothing is answered here by itself: a client of the caller may want to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{BROWSER, Browser, Page};
use crate::cdp::{CdpError, Notice};
use casement_agent_protocol::view::OpenDialog;

/// Sessions with pages that are remembered at most: those that listen, and those of the hands.
const MAX_SESSIONS: usize = 1024;
/// The characters of a page's words that are kept.
const MAX_TEXT: usize = 2000;

/// What one session with a page has heard.
#[derive(Debug)]
struct DialogState {
    target: String,
    open: Option<OpenDialog>,
}

/// The open dialogs, by the session that heard of them and can answer.
#[derive(Debug)]
pub(super) struct Dialogs {
    received: Mutex<HashMap<String, DialogState>>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

impl Default for Dialogs {
    fn default() -> Self {
        Self { received: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Dialogs {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, DialogState>> {
        self.received.lock()
    }

    fn listens(&self, page: &Page) {
        let mut received = self.lock();
        if received.len() < MAX_SESSIONS {
            received
                .entry(page.session.clone())
                .or_insert_with(|| DialogState { target: page.target.clone(), open: None });
        }
    }

    fn is_listened_to(&self, target: &str) -> bool {
        self.lock().values().any(|received| received.target == target)
    }

    /// Learns from what the browser says.
    pub(super) fn heed(&self, notice: &Notice) {
        let gone = |key: &str| notice.params[key].as_str().unwrap_or_default().to_owned();
        let changed = match notice.method.as_str() {
            "Page.javascriptDialogOpening" => self.set(notice, Some(&notice.params)),
            "Page.javascriptDialogClosed" => self.set(notice, None),
            "Target.detachedFromTarget" => self.forget(&gone("sessionId")),
            "Target.targetDestroyed" => {
                let target = gone("targetId");
                let mut received = self.lock();
                let before = received.len();
                received.retain(|_, received| received.target != target);
                before != received.len()
            }
            _ => false,
        };
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn set(&self, notice: &Notice, params: Option<&Value>) -> bool {
        let mut all = self.lock();
        let Some(received) = notice.session.as_ref().and_then(|session| all.get_mut(session)) else { return false };
        let text = |value: &Value| value.as_str().unwrap_or_default().chars().take(MAX_TEXT).collect();
        received.open = params.map(|params| OpenDialog {
            page: received.target.clone(),
            kind: text(&params["type"]),
            message: text(&params["message"]),
            default_text: text(&params["defaultPrompt"]),
            url: text(&params["url"]),
        });
        true
    }

    pub(super) fn forget(&self, session: &str) -> bool {
        self.lock().remove(session).is_some_and(|received| received.open.is_some())
    }

    /// The dialog of the page, and the session that can answer it.
    fn of(&self, target: &str) -> Option<(String, OpenDialog)> {
        let received = self.lock();
        let mut open = received.iter().filter(|(_, received)| received.target == target);
        open.find_map(|(session, received)| Some((session.clone(), received.open.clone()?)))
    }
}

impl Browser {
    /// From now on the dialogs of all pages are heard of, those that open later too.
    pub(crate) async fn subscribe_all_dialogs(&self) -> Result<(), CdpError> {
        self.handles_dialogs.store(true, Ordering::Relaxed);
        let page = self.buffered(BROWSER).await?;
        self.subscribe_dialogs(&page).await
    }

    /// From now on this session hears of the dialogs of its page.
    pub(crate) async fn subscribe_dialogs(&self, page: &Page) -> Result<(), CdpError> {
        self.dialogs.listens(page);
        self.cdp.report(Some(&page.session), "Page.enable", json!({})).await
    }

    /// Hears of the dialogs of a page that is new.
    pub(super) async fn subscribe_new(self: Arc<Self>, target: String) {
        if self.dialogs.is_listened_to(&target) {
            return;
        }
        // It may be gone already.
        if let Ok(page) = self.attach(target, BROWSER).await {
            drop(self.subscribe_dialogs(&page).await);
        }
    }

    /// Whether the page waits for somebody to answer its dialog.
    pub(crate) fn has_dialog(&self, page: &Page) -> bool {
        self.dialog_of(&page.target).is_some()
    }

    /// The dialog that the page has open.
    pub(crate) fn dialog_of(&self, target: &str) -> Option<OpenDialog> {
        self.dialogs.of(target).map(|(_, dialog)| dialog)
    }

    /// All that are open, one of each page.
    pub(crate) fn open_dialogs(&self) -> Vec<OpenDialog> {
        let received = self.dialogs.lock();
        let mut open: Vec<OpenDialog> = received.values().filter_map(|received| received.open.clone()).collect();
        open.sort_by(|one, other| one.page.cmp(&other.page));
        open.dedup_by(|one, other| one.page == other.page);
        open
    }

    /// Counts the changes of what is open.
    pub(crate) fn dialog_changes(&self) -> watch::Receiver<u64> {
        self.dialogs.changes.subscribe()
    }

    /// Returns once the page has a dialog open.
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

    /// Answers the dialog of the page: agrees to it, with this text where it asks for one, or dismisses it. None is open: nothing is done.
    pub(crate) async fn answer_dialog(&self, target: &str, agree: bool, text: &str) -> Result<(), CdpError> {
        let Some((session, _)) = self.dialogs.of(target) else { return Ok(()) };
        let answer = json!({ "accept": agree, "promptText": text });
        match self.cdp.call(Some(&session), "Page.handleJavaScriptDialog", answer, BROWSER).await {
            // Somebody else was quicker.
            Err(CdpError::Refused { .. }) => {
                if let Some(received) = self.dialogs.lock().get_mut(&session) {
                    received.open = None;
                }
                Ok(())
            }
            other => other.map(drop),
        }
    }
}
