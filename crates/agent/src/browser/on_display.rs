//! The browser's window on a display, once the browser has started.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{BROWSER_TIMEOUT, Browser, Page};
use crate::cdp::CdpError;
use casement_agent_protocol::Viewport;

/// The timeout for the window to fill the display, and for one answer of its page, which may be a busy one.
const FILL_TIMEOUT: Duration = Duration::from_secs(2);
const PAGE_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval at which the window's size is queried meanwhile.
const RETRY_BACKOFF: Duration = Duration::from_millis(5);

impl Browser {
    /// Waits until the window in front fills the display, and gives the keyboard to its page. Chromium itself gives it
    /// to the address bar.
    pub(crate) async fn settle_on_display(&self, viewport: Viewport) -> Result<(), CdpError> {
        let front = self.front_target().await?;
        let attached = self.probe_page.lock().clone().filter(|page| page.target == front);
        let page = match &attached {
            Some(page) => page.clone(),
            None => self.attach(front, BROWSER_TIMEOUT).await?,
        };
        self.wait_for_window(&page, viewport).await;
        let focused = self.cdp.call(Some(&page.session), "Page.bringToFront", json!({}), BROWSER_TIMEOUT).await;
        if attached.is_none() {
            self.detach(&page).await;
        }
        focused.map(drop)
    }

    /// Waits until the page in front has handled the input that it was sent before. Does not wait for a page that does
    /// not answer.
    pub(crate) async fn settle_front(&self) {
        let settled = async {
            let front = self.front_target().await?;
            if self.block_of(&front).is_some() {
                return Ok(());
            }
            let page = self.attach(front, PAGE_TIMEOUT).await?;
            let answered = self.evaluate(&page.session, "1", PAGE_TIMEOUT).await;
            self.detach(&page).await;
            answered.map(drop)
        };
        let settled: Result<(), CdpError> = settled.await;
        if let Err(error) = settled {
            tracing::debug!(%error, "the page in front does not answer after a shortcut");
        }
    }

    /// Waits until the page's window has the size of the display. A busy page does not report it in time.
    async fn wait_for_window(&self, page: &Page, viewport: Viewport) {
        let deadline = Instant::now() + FILL_TIMEOUT;
        let expected = json!([viewport.width, viewport.height]);
        while Instant::now() < deadline {
            match self.evaluate(&page.session, "[outerWidth, outerHeight]", PAGE_TIMEOUT).await {
                Ok(size) if size == expected => return,
                Ok(_) => tokio::time::sleep(RETRY_BACKOFF).await,
                Err(error) => return tracing::debug!(%error, "the page in front does not report its window"),
            }
        }
        tracing::warn!("the browser's window does not fill the display");
    }
}
