//! What live views need from outside.

use async_trait::async_trait;

use super::Frame;
use crate::ids::BrowserId;
use crate::inside::InsideError;

/// Shows the displays of running browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LiveDisplay: Send + Sync {
    /// What changed since the frame named `since`, or all of the display, as it is now. Waits for a change; `None` when none came for
    /// some seconds.
    ///
    /// # Errors
    /// [`InsideError::NotSupported`] for a browser without a display.
    async fn next_frame(&self, browser: BrowserId, since: Option<u64>) -> Result<Option<Frame>, InsideError>;
}
