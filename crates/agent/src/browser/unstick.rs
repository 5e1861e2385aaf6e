//! Terminates the script in which a page hangs.
//!
//! A script of a caller that is ended can leave an endless loop in a page. No client can attach to such a page, so no
//! further script could connect to the browser. The session that has been attached since the start still reaches it.

use std::time::Duration;

use serde_json::json;

use super::{Browser, Page};
use crate::cdp::CdpError;

/// The time without an answer after which a page counts as hung.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);
/// The timeout of terminating the script.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);

impl Browser {
    /// Terminates the script of the probe's page if the page does not answer.
    pub(crate) async fn free_stuck_page(&self) {
        let page = self.probe_page.lock().clone();
        if let Some(page) = page {
            self.free_stuck(&page).await;
        }
    }

    /// Terminates the script of an attached page if the page does not answer.
    pub(crate) async fn free_stuck(&self, page: &Page) {
        // A page with an open dialog waits for the answer to it, and a crashed one runs no script.
        if self.block_of(&page.target).is_some() {
            return;
        }
        // On an idle page this would terminate the next script.
        if let Err(CdpError::Timeout { .. }) = self.evaluate(&page.session, "0", ANSWER_TIMEOUT).await {
            let ended =
                self.cdp.call(Some(&page.session), "Runtime.terminateExecution", json!({}), TERMINATE_TIMEOUT).await;
            tracing::debug!(ended = ended.is_ok(), "terminated the script of a page that hung");
        }
    }
}
