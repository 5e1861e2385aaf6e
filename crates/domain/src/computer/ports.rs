//! What computer control needs from outside.

use std::time::Duration;

use async_trait::async_trait;

use super::{Action, Point};
use crate::ids::BrowserId;
use crate::inside::InsideError;

/// The hands and eyes inside a session's machine. What is done for two callers at once is done one after the other.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Computer: Send + Sync {
    /// Does `actions` in order, within `longest` together. Stops at the first that fails, lets go of what it held, and so it does when
    /// the caller goes.
    ///
    /// # Errors
    /// [`InsideError::Failed`] with the number of the action, counted from 0, where one of several failed;
    /// [`InsideError::Limit`] when too many callers wait.
    async fn perform(&self, browser: BrowserId, actions: Vec<Action>, longest: Duration) -> Result<(), InsideError>;

    /// Where the mouse is.
    async fn mouse(&self, browser: BrowserId) -> Result<Point, InsideError>;

    /// Puts text on the clipboard.
    async fn write_clipboard(&self, browser: BrowserId, text: String) -> Result<(), InsideError>;

    /// The text on the clipboard; empty when there is none.
    ///
    /// # Errors
    /// [`InsideError::TooLarge`] when a page put more there than may be read.
    async fn read_clipboard(&self, browser: BrowserId) -> Result<String, InsideError>;
}
