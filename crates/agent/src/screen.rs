//! Hand-outs, screenshots and the viewport.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::browser_handle::BrowserHandle;
use crate::cdp::CdpError;
use crate::picture;
use crate::replay::Replays;
use crate::reply::{self, Answer, Refusal, empty};
use crate::restart::check_size;
use crate::screen_capture::ScreenCapture;
use crate::server_contact::ServerContact;
use casement_agent_protocol::{DEFAULT_HANDOUT_MS, ErrorCode, Handout, Region, ScreenshotRequest, Viewport};

/// The maximum timeout of a hand-out, in milliseconds.
const MAX_HANDOUT_MS: u64 = 30_000;

/// The operations on what the browser shows.
#[derive(Debug)]
pub(crate) struct ScreenOperations {
    pub(crate) browser: BrowserHandle,
    pub(crate) capture: ScreenCapture,
    pub(crate) replays: Arc<Replays>,
    pub(crate) contact: Arc<ServerContact>,
}

impl ScreenOperations {
    /// Proves that the page answers, and begins to load the start URL.
    pub(crate) async fn hand_out(&self, request: Handout) -> Answer {
        let running = self.browser.usable()?;
        let hung = |error: CdpError| Refusal::new(ErrorCode::BrowserHung, error);
        let within = Duration::from_millis(request.timeout_ms.unwrap_or(DEFAULT_HANDOUT_MS).clamp(1, MAX_HANDOUT_MS));
        tokio::time::timeout(within, running.browser.probe(within))
            .await
            .map_err(|_| hung(CdpError::Timeout { method: "hand-out", after: within }))?
            .map_err(hung)?;
        if let Some(seconds) = request.idle_end_seconds {
            self.contact.set_idle_timeout(seconds);
        }
        if let Some(url) = request.start_url {
            running.browser.open(&url).await.map_err(hung)?;
        }
        Ok(empty())
    }

    /// Returns a PNG of a region, or of the whole viewport.
    pub(crate) async fn screenshot(&self, request: ScreenshotRequest) -> Answer {
        let running = self.browser.usable()?;
        let whole = self.browser.viewport();
        let region = request.region.unwrap_or(Region { x: 0, y: 0, width: whole.width, height: whole.height });
        check_inside(region, whole)?;
        let started_at = Instant::now();
        let png = self.capture.png(&running, region).await?;
        if picture::size(&png) != Some((region.width, region.height)) {
            let message =
                format!("the picture is {:?} instead of {} × {}", picture::size(&png), region.width, region.height);
            return Err(Refusal::new(ErrorCode::Internal, message));
        }
        tracing::debug!(elapsed_ms = started_at.elapsed().as_millis(), bytes = png.len(), "took a screenshot");
        Ok(reply::bytes("image/png", png))
    }

    /// Resizes the display, or all pages of a browser without one.
    pub(crate) async fn resize(&self, viewport: Viewport) -> Answer {
        let running = self.browser.usable()?;
        check_size(viewport)?;
        // A running recording continues in a new part.
        let _paused = self.replays.pause().await;
        match &running.display {
            Some(display) => display.resize(viewport).await?,
            None => running.browser.resize(viewport).await?,
        }
        self.browser.status().update(|status| status.viewport = viewport);
        Ok(empty())
    }
}

/// Checks that a region lies completely within the viewport.
fn check_inside(region: Region, whole: Viewport) -> Result<(), Refusal> {
    let fits = |start: u32, length: u32, end: u32| length > 0 && start.checked_add(length).is_some_and(|e| e <= end);
    if fits(region.x, region.width, whole.width) && fits(region.y, region.height, whole.height) {
        return Ok(());
    }
    let message = format!("the region must lie within {} × {} pixels", whole.width, whole.height);
    Err(Refusal::new(ErrorCode::OutOfRange, message))
}
