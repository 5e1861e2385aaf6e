//! What a browser that is started anew takes over from the one before it: the pages that were open, and which was in front.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{BROWSER, Browser, FIRST_ANSWER, MAX_PAGES, Page};
use crate::cdp::CdpError;

/// The page a restarted browser opens beside those it restores: one that certainly answers, whatever the others do.
pub(crate) const MARKED: &str = "data:,started%20anew";
/// How long the others have to be there again.
const RESTORED: Duration = Duration::from_secs(5);
/// Between two looks.
const RETRY_BACKOFF: Duration = Duration::from_millis(20);

/// What was open.
#[derive(Debug, Default)]
pub(crate) struct OpenTabs {
    pages: usize,
    front: Option<String>,
}

impl Browser {
    /// What is open now, as far as the browser tells.
    pub(crate) async fn opened(&self) -> OpenTabs {
        let pages = self.page_addresses().await.unwrap_or_default();
        let front = match tokio::time::timeout(Duration::from_secs(2), self.front_target()).await {
            Ok(Ok(target)) => pages.iter().find(|(id, _)| *id == target).map(|(_, url)| url.clone()),
            _ => None,
        };
        OpenTabs { pages: pages.len(), front }
    }

    /// Waits for the page that the restart itself opens, and keeps it.
    pub(super) async fn await_marked_page(&self) -> Result<(), CdpError> {
        let deadline = Instant::now() + FIRST_ANSWER;
        let target = loop {
            let pages = self.page_addresses().await?;
            if let Some((target, _)) = pages.into_iter().find(|(_, url)| url == MARKED) {
                break target;
            }
            if Instant::now() >= deadline {
                return Err(CdpError::Timeout { method: "first page", after: FIRST_ANSWER });
            }
            tokio::time::sleep(RETRY_BACKOFF).await;
        };
        let page = self.attach(target, FIRST_ANSWER).await?;
        self.keep(Some(page));
        Ok(())
    }

    /// Gives way to the pages that are there again: the one of the restart closes, the one that was in front comes to the front.
    /// Where none came back, that of the restart stays, blank.
    pub(crate) async fn give_way(&self, before: &OpenTabs) -> Result<(), CdpError> {
        let wanted = before.pages.min(MAX_PAGES);
        let deadline = Instant::now() + RESTORED;
        let restored = loop {
            let mut pages = self.page_addresses().await?;
            pages.retain(|(_, url)| url != MARKED);
            if pages.len() >= wanted || Instant::now() >= deadline {
                break pages;
            }
            tokio::time::sleep(RETRY_BACKOFF).await;
        };
        if restored.len() < wanted {
            tracing::warn!(pages = restored.len(), of = wanted, "not every page was restored");
        }
        let Page { target: marked, session } = self.buffered(BROWSER).await?;
        if restored.is_empty() {
            return self.cdp.report(Some(&session), "Page.navigate", json!({ "url": "about:blank" })).await;
        }
        self.keep(None);
        self.cdp.call(None, "Target.closeTarget", json!({ "targetId": marked }), BROWSER).await?;
        let front = restored.iter().find(|(_, url)| Some(url) == before.front.as_ref());
        if let Some((target, _)) = front {
            self.cdp.call(None, "Target.activateTarget", json!({ "targetId": target }), BROWSER).await?;
        }
        Ok(())
    }

    /// Where the extensions lie that the browser has taken; `None` from a browser that does not tell.
    pub(crate) async fn extensions(&self) -> Result<Option<Vec<String>>, CdpError> {
        match self.cdp.call(None, "Extensions.getExtensions", json!({}), BROWSER).await {
            Ok(answer) => {
                let all = answer["extensions"].as_array().map(Vec::as_slice).unwrap_or_default();
                Ok(Some(all.iter().filter_map(|one| one["path"].as_str()).map(str::to_owned).collect()))
            }
            Err(CdpError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The open pages and their addresses.
    async fn page_addresses(&self) -> Result<Vec<(String, String)>, CdpError> {
        let answer = self.cdp.call(None, "Target.getTargets", json!({}), BROWSER).await?;
        let infos = answer["targetInfos"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let pages = infos.iter().filter(|info| info["type"] == "page");
        Ok(pages.map(|info| (text(&info["targetId"]), text(&info["url"]))).collect())
    }
}
