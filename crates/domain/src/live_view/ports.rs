//! The port to live views.

use async_trait::async_trait;

use super::{DialogAnswer, Frame, OpenDialogs};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// Shows the displays of running browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LiveDisplay: Send + Sync {
    /// What changed since the frame named `since`, or all of the display, as it is now. Waits for a change; `None` when none came for
    /// some seconds.
    ///
    /// # Errors
    /// [`OperationError::NotSupported`] for a browser without a display.
    async fn next_frame(&self, browser: BrowserId, since: Option<u64>) -> Result<Option<Frame>, OperationError>;

    /// The dialogs that are open once they are not those of `since` any more, or after some seconds; at once without `since`. Of a browser
    /// with a display none: there the display shows them.
    async fn next_dialogs(&self, browser: BrowserId, since: Option<u64>) -> Result<OpenDialogs, OperationError>;

    /// Answers the dialog of a page. Nothing happens if it has none open.
    async fn answer_dialog(&self, browser: BrowserId, answer: DialogAnswer) -> Result<(), OperationError>;
}
