//! Pictures of the page in front.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use super::{BROWSER_TIMEOUT, Browser, Page};
use crate::cdp::{CdpError, text};
use crate::picture;
use casement_agent_protocol::Region;

/// The timeout of a screenshot: a large page is drawn without a graphics card.
const SCREENSHOT_TIMEOUT: Duration = Duration::from_secs(30);

impl Browser {
    /// Returns a PNG of `region` of the page in front, in device pixels.
    pub(crate) async fn capture(&self, region: Region) -> Result<Vec<u8>, CdpError> {
        let target = self.front_target().await?;
        if let Some(block) = self.block_of(&target) {
            return Err(block);
        }
        // The picture of a page with an emulated size has that size only in the session that emulates it.
        let held = self.held_sizes.session(&target);
        let is_held = held.is_some();
        let page = match held {
            Some(session) => Page { target, session },
            None => self.attach(target, BROWSER_TIMEOUT).await?,
        };
        let captured = tokio::select! {
            biased;
            block = self.blocks(&page.target) => Err(block),
            captured = self.capture_page(&page, region) => captured,
        };
        if !is_held {
            self.detach(&page).await;
        }
        captured
    }

    /// A picture with a clip closes the lists and pickers that are open, so the visible part is taken as a whole, and a part
    /// is cut from it. That is possible where it has the size of the viewport.
    async fn capture_page(&self, page: &Page, region: Region) -> Result<Vec<u8>, CdpError> {
        let viewport = self.viewport();
        let (is_whole, is_plain) = (
            region == Region { x: 0, y: 0, width: viewport.width, height: viewport.height },
            !self.endpoint.is_remote() && !self.emulates_sizes(),
        );
        if is_plain {
            match self.capture_visible(page).await {
                Ok(whole) if picture::size(&whole) == Some((viewport.width, viewport.height)) => {
                    let cut = if is_whole { Some(whole) } else { picture::cropped(&whole, region) };
                    if let Some(cut) = cut {
                        return Ok(cut);
                    }
                }
                // Chromium refuses this kind of picture of a page that is being replaced by the next one.
                Ok(_) | Err(CdpError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let metrics = self.cdp.call(Some(&page.session), "Page.getLayoutMetrics", json!({}), BROWSER_TIMEOUT).await?;
        // The clip is relative to the document, a region to the visible part.
        let scroll_offset = |key: &str| metrics["cssVisualViewport"][key].as_f64().unwrap_or(0.0);
        let clip = json!({
            "x": f64::from(region.x) + scroll_offset("pageX"),
            "y": f64::from(region.y) + scroll_offset("pageY"),
            "width": region.width, "height": region.height, "scale": 1,
        });
        self.screenshot(page, json!({ "format": "png", "clip": clip, "optimizeForSpeed": true })).await
    }

    /// Returns a PNG of the visible part of a page, with its open lists and pickers.
    pub(crate) async fn capture_visible(&self, page: &Page) -> Result<Vec<u8>, CdpError> {
        self.screenshot(page, json!({ "format": "png", "optimizeForSpeed": true })).await
    }

    /// Like [`capture_visible`](Self::capture_visible), without lists and pickers, which stay open.
    pub(crate) async fn capture_without_pickers(&self, page: &Page) -> Result<Vec<u8>, CdpError> {
        self.screenshot(page, json!({ "format": "png", "optimizeForSpeed": true, "fromSurface": false })).await
    }

    async fn screenshot(&self, page: &Page, params: Value) -> Result<Vec<u8>, CdpError> {
        const METHOD: &str = "Page.captureScreenshot";
        let encoded = self.cdp.call(Some(&page.session), METHOD, params, SCREENSHOT_TIMEOUT).await?;
        base64::engine::general_purpose::STANDARD
            .decode(text(&encoded["data"]))
            .map_err(|e| CdpError::Refused { method: METHOD, message: format!("the picture is not readable: {e}") })
    }
}
