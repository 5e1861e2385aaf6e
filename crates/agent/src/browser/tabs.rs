//! Tabs that the agent opens for callers.

use serde_json::json;

use super::{BROWSER_TIMEOUT, Browser, Page};
use crate::cdp::{CdpError, text};

impl Browser {
    /// Opens a tab behind the page in front, and attaches to it.
    pub(crate) async fn open_tab(&self) -> Result<Page, CdpError> {
        let blank = json!({ "url": "about:blank", "background": true });
        let created = self.cdp.call(None, "Target.createTarget", blank, BROWSER_TIMEOUT).await?;
        let target = text(&created["targetId"]);
        let attached = self.attach(target.to_owned(), BROWSER_TIMEOUT).await;
        if attached.is_err() {
            self.close_tab(target).await;
        }
        attached
    }

    /// Returns the URL of a tab; `None` if it does not exist.
    pub(crate) async fn url_of(&self, target: &str) -> Result<Option<String>, CdpError> {
        let params = json!({ "targetId": target });
        match self.cdp.call(None, "Target.getTargetInfo", params, BROWSER_TIMEOUT).await {
            Ok(found) => Ok(Some(text(&found["targetInfo"]["url"]).to_owned())),
            Err(CdpError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Closes a tab, if it exists.
    pub(crate) async fn close_tab(&self, target: &str) {
        let params = json!({ "targetId": target });
        drop(self.cdp.call(None, "Target.closeTarget", params, BROWSER_TIMEOUT).await);
    }
}
