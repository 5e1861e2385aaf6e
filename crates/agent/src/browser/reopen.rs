//! The state that a restarted browser takes over from the previous one: its open tabs and the one in front, and its
//! extensions.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{BROWSER_TIMEOUT, Browser, FIRST_PAGE_TIMEOUT, MAX_PAGES, Page};
use crate::cdp::CdpError;

/// The page that a restarted browser opens beside the restored ones. It answers even if no other page does.
pub(crate) const RESTART_PAGE: &str = "data:,started%20anew";
/// The timeout for the other pages to be restored.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which the pages are listed meanwhile.
const RETRY_BACKOFF: Duration = Duration::from_millis(20);

/// The open tabs of a browser.
#[derive(Debug, Default)]
pub(crate) struct OpenTabs {
    pages: usize,
    front: Option<String>,
}

impl Browser {
    /// Returns the open tabs, or none if the browser does not answer.
    pub(crate) async fn open_tabs(&self) -> OpenTabs {
        let pages = self.page_addresses().await.unwrap_or_default();
        let front = match tokio::time::timeout(Duration::from_secs(2), self.front_target()).await {
            Ok(Ok(target)) => pages.iter().find(|(id, _)| *id == target).map(|(_, url)| url.clone()),
            _ => None,
        };
        OpenTabs { pages: pages.len(), front }
    }

    /// Waits for [`RESTART_PAGE`] and attaches to it.
    pub(super) async fn wait_for_restart_page(&self) -> Result<(), CdpError> {
        let deadline = Instant::now() + FIRST_PAGE_TIMEOUT;
        let target = loop {
            let pages = self.page_addresses().await?;
            if let Some((target, _)) = pages.into_iter().find(|(_, url)| url == RESTART_PAGE) {
                break target;
            }
            if Instant::now() >= deadline {
                return Err(CdpError::Timeout { method: "first page", after: FIRST_PAGE_TIMEOUT });
            }
            tokio::time::sleep(RETRY_BACKOFF).await;
        };
        let page = self.attach(target, FIRST_PAGE_TIMEOUT).await?;
        self.set_probe_page(Some(page));
        Ok(())
    }

    /// Waits for the restored pages, closes [`RESTART_PAGE`] and brings the previous front page to the front. If no
    /// page was restored, the page of the restart becomes blank.
    pub(crate) async fn show_restored(&self, previous: &OpenTabs) -> Result<(), CdpError> {
        let expected = previous.pages.min(MAX_PAGES);
        let deadline = Instant::now() + RESTORE_TIMEOUT;
        let restored = loop {
            let mut pages = self.page_addresses().await?;
            pages.retain(|(_, url)| url != RESTART_PAGE);
            if pages.len() >= expected || Instant::now() >= deadline {
                break pages;
            }
            tokio::time::sleep(RETRY_BACKOFF).await;
        };
        if restored.len() < expected {
            tracing::warn!(pages = restored.len(), of = expected, "not every page was restored");
        }
        let Page { target: restart_page, session } = self.probe_page(BROWSER_TIMEOUT).await?;
        if restored.is_empty() {
            return self.cdp.send(Some(&session), "Page.navigate", json!({ "url": "about:blank" })).await;
        }
        self.set_probe_page(None);
        self.cdp.call(None, "Target.closeTarget", json!({ "targetId": restart_page }), BROWSER_TIMEOUT).await?;
        let front = restored.iter().find(|(_, url)| Some(url) == previous.front.as_ref());
        if let Some((target, _)) = front {
            self.cdp.call(None, "Target.activateTarget", json!({ "targetId": target }), BROWSER_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Returns the paths of the loaded extensions; `None` if the browser cannot list them.
    pub(crate) async fn extensions(&self) -> Result<Option<Vec<String>>, CdpError> {
        match self.cdp.call(None, "Extensions.getExtensions", json!({}), BROWSER_TIMEOUT).await {
            Ok(answer) => {
                let all = answer["extensions"].as_array().map(Vec::as_slice).unwrap_or_default();
                Ok(Some(all.iter().filter_map(|one| one["path"].as_str()).map(str::to_owned).collect()))
            }
            Err(CdpError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
