//! Waits until a page has settled.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::frames::Document;
use super::tab::{Attached, Tab};
use crate::cdp::CdpError;

/// The time without requests and changes after which a page has settled.
const QUIET: Duration = Duration::from_millis(200);
/// The timeout of a call, in addition to the time that the called function waits.
const AROUND: Duration = Duration::from_secs(3);
/// The pause before the documents of a navigating page are requested again.
const RETRY_BACKOFF: Duration = Duration::from_millis(20);

impl Tab {
    /// Waits until the page has settled; `false` if it has not by `until`.
    pub(super) async fn settle(&self, page: &Attached, until: Instant) -> Result<bool, CdpError> {
        loop {
            if !self.quiet(until).await {
                return Ok(false);
            }
            let before = self.quiet_since();
            let rested = match self.documents(page, AROUND).await {
                Ok(documents) => self.rest(&documents, until).await,
                // The page was replaced during the call, or is too busy to answer.
                Err(CdpError::Refused { .. } | CdpError::Timeout { .. }) => {
                    tokio::time::sleep(RETRY_BACKOFF).await;
                    false
                }
                Err(error) => return Err(error),
            };
            if rested && self.quiet_since().is_some() && self.quiet_since() == before {
                return Ok(true);
            }
            if Instant::now() >= until || self.is_gone() {
                return Ok(false);
            }
        }
    }

    /// Waits until no request has been pending for a moment; `false` if that does not happen by `until`.
    async fn quiet(&self, until: Instant) -> bool {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let now = Instant::now();
            let wake = match self.quiet_since() {
                Some(since) if now >= since + QUIET => return true,
                Some(since) => since + QUIET,
                None => self.next_given_up().unwrap_or(until),
            };
            if now >= until || self.is_gone() {
                return false;
            }
            // A notice or the deadline ends the wait.
            drop(timeout_at(wake.min(until), changes.changed()).await);
        }
    }

    /// Waits until nothing has changed in the documents for a moment; `false` if that does not happen by `until`.
    async fn rest(&self, documents: &[Document], until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let requested = [json!(ms(QUIET)), json!(ms(left))];
        let rests = documents.iter().map(|document| self.ask(document, "rest", &requested, left + AROUND));
        let mut rested = join_all(rests).await.into_iter();
        // A frame that does not answer counts as settled.
        let page = rested.next().is_some_and(|answer| answer.is_ok_and(|calm| calm == true));
        page && rested.all(|answer| answer.map_or(true, |calm| calm == true))
    }

    /// Waits for a notice of the tab or a change in its documents, at most until `until`.
    pub(super) async fn wait_for_change(&self, page: &Attached, until: Instant) {
        let mut changes = self.changes();
        changes.borrow_and_update();
        let left = until.saturating_duration_since(Instant::now());
        let requested = [json!(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))];
        let in_documents = async {
            if let Ok(documents) = self.documents(page, AROUND).await {
                let all =
                    documents.iter().map(|document| Box::pin(self.ask(document, "change", &requested, left + AROUND)));
                drop(futures_util::future::select_all(all).await);
            }
        };
        tokio::select! {
            () = in_documents => {}
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}
