//! Takes screenshots of the session, a few at a time: each needs several times the memory of the display.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::browser_handle::RunningBrowser;
use crate::cdp::CdpError;
use crate::display::DisplayError;
use crate::reply::Refusal;
use casement_agent_protocol::{ErrorCode, Region};

/// The maximum number of concurrent screenshots.
const MAX_SCREENSHOTS: usize = 2;

/// The reason why a screenshot failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error(transparent)]
    Display(#[from] DisplayError),
    #[error(transparent)]
    Page(#[from] CdpError),
}

impl From<CaptureError> for Refusal {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Display(error) => error.into(),
            CaptureError::Page(error) => error.into(),
        }
    }
}

impl From<DisplayError> for Refusal {
    fn from(error: DisplayError) -> Self {
        match error {
            DisplayError::OutOfRange(..) => Self::new(ErrorCode::OutOfRange, error),
            other => Self::new(ErrorCode::Internal, other),
        }
    }
}

/// Takes screenshots. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ScreenCapture(Arc<Semaphore>);

impl Default for ScreenCapture {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_SCREENSHOTS)))
    }
}

impl ScreenCapture {
    /// Waits until another screenshot may be taken.
    pub(crate) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }

    /// Returns a PNG of `region` of the display, or of the page in front if there is no display.
    pub(crate) async fn png(&self, running: &RunningBrowser, region: Region) -> Result<Vec<u8>, CaptureError> {
        let _slot = self.slot().await;
        Ok(match &running.display {
            Some(display) => display.capture(region).await?,
            None => running.browser.capture(region).await?,
        })
    }
}
