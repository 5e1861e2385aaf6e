//! Pictures of the page in front.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use super::focused::OpenPicker;
use super::{BROWSER_TIMEOUT, Browser, Page};
use crate::cdp::{CdpError, text};
use crate::picture;
use casement_agent_protocol::Region;

/// The timeout of a screenshot: a large page is drawn without a graphics card.
const SCREENSHOT_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a picture without a clip, which Chromium does not answer for a page that is replaced at this moment.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(5);

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

    async fn capture_page(&self, page: &Page, region: Region) -> Result<Vec<u8>, CdpError> {
        let metrics = self.cdp.call(Some(&page.session), "Page.getLayoutMetrics", json!({}), BROWSER_TIMEOUT).await?;
        if self.is_cut_from_whole(page, &metrics).await?
            && let Some(cut) = self.cut(page, region).await?
        {
            return Ok(cut);
        }
        // The clip is relative to the document, a region to the visible part.
        let scroll_offset = |key: &str| metrics["cssVisualViewport"][key].as_f64().unwrap_or(0.0);
        let clip = json!({
            "x": f64::from(region.x) + scroll_offset("pageX"),
            "y": f64::from(region.y) + scroll_offset("pageY"),
            "width": region.width, "height": region.height, "scale": 1,
        });
        self.screenshot(page, json!({ "format": "png", "clip": clip, "optimizeForSpeed": true })).await
    }

    /// Returns true if the picture of a region has to be cut from one without a clip: a clip closes lists and pickers, and
    /// counts in pixels of the page, which are larger in a zoomed one.
    async fn is_cut_from_whole(&self, page: &Page, metrics: &Value) -> Result<bool, CdpError> {
        if self.endpoint.is_remote() || self.emulates_sizes() {
            return Ok(false);
        }
        let is_zoomed = |name: &str| metrics["cssVisualViewport"][name].as_f64().is_some_and(|factor| factor != 1.0);
        if is_zoomed("zoom") || is_zoomed("scale") {
            return Ok(true);
        }
        match OpenPicker::find(self, page).await {
            // The document has just been left.
            Err(CdpError::Refused { .. }) => Ok(false),
            picker => picker.map(|picker| picker.is_some()),
        }
    }

    /// Returns the region, cut from a picture of the visible part. Returns `None` where Chromium takes no such picture: it
    /// refuses one of a page that is being replaced by the next one, or does not answer.
    async fn cut(&self, page: &Page, region: Region) -> Result<Option<Vec<u8>>, CdpError> {
        let viewport = self.viewport();
        let whole = match tokio::time::timeout(WHOLE_TIMEOUT, self.capture_visible(page)).await {
            Ok(Ok(whole)) if picture::size(&whole) == Some((viewport.width, viewport.height)) => whole,
            Ok(Ok(_) | Err(CdpError::Refused { .. })) | Err(_) => return Ok(None),
            Ok(Err(error)) => return Err(error),
        };
        let is_whole = region == Region { x: 0, y: 0, width: viewport.width, height: viewport.height };
        Ok(if is_whole { Some(whole) } else { picture::cropped(&whole, region) })
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
