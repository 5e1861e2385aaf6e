//! Dialogs that pages open with `alert`, `confirm`, `prompt` and before they are left. Without a display nobody sees them, but the page
//! waits: the hands that caused one must not wait with it, and can answer it with the keyboard.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use tokio::sync::watch;

use super::{BROWSER, Browser, Page};
use crate::cdp::{CdpError, Notice};

/// Sessions remembered at most. A page has one dialog at a time, and the hands are on one page.
const MOST: usize = 64;

/// The sessions attached to a page of which a dialog is open.
#[derive(Debug)]
pub(super) struct Dialogs {
    open: Mutex<HashSet<String>>,
    changed: watch::Sender<()>,
}

impl Default for Dialogs {
    fn default() -> Self {
        Self { open: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Dialogs {
    /// Learns from what the browser says.
    pub(super) fn heed(&self, notice: &Notice) {
        let Some(session) = &notice.session else { return };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match notice.method.as_str() {
            "Page.javascriptDialogOpening" => open.len() < MOST && open.insert(session.clone()),
            "Page.javascriptDialogClosed" => open.remove(session),
            _ => false,
        };
        drop(open);
        if changed {
            self.changed.send_replace(());
        }
    }

    fn is_open(&self, session: &str) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).contains(session)
    }

    pub(super) fn forget(&self, session: &str) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
    }
}

impl Browser {
    /// From now on this session hears of the dialogs of its page.
    pub(crate) async fn hear_dialogs(&self, page: &Page) -> Result<(), CdpError> {
        self.cdp.call(Some(&page.session), "Page.enable", json!({}), BROWSER).await.map(drop)
    }

    /// Whether the page waits for somebody to answer its dialog.
    pub(crate) fn has_dialog(&self, page: &Page) -> bool {
        self.dialogs.is_open(&page.session)
    }

    /// Returns once the page has a dialog open.
    pub(crate) async fn dialog_opens(&self, session: &str) {
        let mut changes = self.dialogs.changed.subscribe();
        while !self.dialogs.is_open(session) {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Answers the dialog of the page: agrees to it, with this text where it asks for one, or dismisses it.
    pub(crate) async fn answer_dialog(&self, page: &Page, agree: bool, text: &str) -> Result<(), CdpError> {
        let answer = json!({ "accept": agree, "promptText": text });
        match self.cdp.call(Some(&page.session), "Page.handleJavaScriptDialog", answer, BROWSER).await {
            // Somebody else was quicker.
            Err(CdpError::Refused { .. }) => self.dialogs.forget(&page.session),
            other => drop(other?),
        }
        Ok(())
    }
}
