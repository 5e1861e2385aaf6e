//! The port to live views.

use async_trait::async_trait;

use super::{DialogAnswer, Frame, OpenDialogs};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// The port to the displays of running browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LiveDisplay: Send + Sync {
    /// Waits for a change and returns the part of the display that changed since the version `since`, or the whole
    /// display; `None` if nothing changed for some seconds.
    ///
    /// # Errors
    /// [`OperationError::NotSupported`] for a browser without a display.
    async fn next_frame(&self, browser: BrowserId, since: Option<u64>) -> Result<Option<Frame>, OperationError>;

    /// Returns the open dialogs as soon as they differ from the version `since`, or after some seconds; at once without
    /// `since`. The list of a browser with a display is empty, because the display shows the dialogs.
    async fn next_dialogs(&self, browser: BrowserId, since: Option<u64>) -> Result<OpenDialogs, OperationError>;

    /// Answers the open dialog of a page, if there is one.
    async fn answer_dialog(&self, browser: BrowserId, answer: DialogAnswer) -> Result<(), OperationError>;
}
