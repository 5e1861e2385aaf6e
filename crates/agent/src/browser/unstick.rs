//! A page that hangs in its own code is freed from it.
//!
//! A script that is ended can leave a page in a loop that it put there. Nobody can attach to such a page any more, so no further script
//! could reach the browser at all. The session that has been attached since the start still reaches it.

use std::time::Duration;

use serde_json::json;

use super::Browser;
use crate::cdp::CdpError;

/// A page that has not answered for so long hangs.
const ANSWER: Duration = Duration::from_millis(300);
/// How long the end of what runs in it may take.
const END: Duration = Duration::from_secs(1);

impl Browser {
    /// Ends what runs in the kept page if it does not answer.
    pub(crate) async fn free_stuck_page(&self) {
        let Some(page) = self.page.lock().clone() else { return };
        // It waits for a person.
        if self.has_dialog(&page) {
            return;
        }
        // Told to a page at rest, it would end what runs there next.
        if let Err(CdpError::Timeout { .. }) = self.evaluate(&page.session, "0", ANSWER).await {
            let ended = self.cdp.call(Some(&page.session), "Runtime.terminateExecution", json!({}), END).await;
            tracing::debug!(ended = ended.is_ok(), "a page hung when its script was ended");
        }
    }
}
