//! The port of computer control.

use std::time::Duration;

use async_trait::async_trait;

use super::{Action, Point};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// The error of a sequence of actions.
#[derive(Debug)]
pub struct ActionError {
    /// The index of the failed action; `None` if none was begun.
    pub at: Option<usize>,
    /// The error.
    pub error: OperationError,
}

impl From<OperationError> for ActionError {
    fn from(error: OperationError) -> Self {
        Self { at: None, error }
    }
}

/// The port to the mouse, keyboard and clipboard of a sandbox. Calls of several callers run one after the other.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Computer: Send + Sync {
    /// Performs `actions` in order, within `longest` in total. Stops at the first error and releases all pressed keys
    /// and buttons, also if the future is dropped.
    ///
    /// # Errors
    /// [`OperationError::Limit`] if too many callers wait; the error of an action with its index.
    async fn perform(&self, browser: BrowserId, actions: Vec<Action>, longest: Duration) -> Result<(), ActionError>;

    /// Returns the position of the mouse.
    async fn mouse(&self, browser: BrowserId) -> Result<Point, OperationError>;

    /// Writes text to the clipboard.
    async fn write_clipboard(&self, browser: BrowserId, text: String) -> Result<(), OperationError>;

    /// Reads the text of the clipboard; it is empty if there is none.
    ///
    /// # Errors
    /// [`OperationError::TooLarge`] if a page wrote more than may be read.
    async fn read_clipboard(&self, browser: BrowserId) -> Result<String, OperationError>;
}
