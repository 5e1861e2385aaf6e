//! What computer control needs from outside.

use std::time::Duration;

use async_trait::async_trait;

use super::{Action, Point};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// Hands did not do all of it.
#[derive(Debug)]
pub struct BrokeOff {
    /// The action that failed, counted from 0; `None` when none was begun.
    pub at: Option<usize>,
    /// Why.
    pub error: OperationError,
}

impl From<OperationError> for BrokeOff {
    fn from(error: OperationError) -> Self {
        Self { at: None, error }
    }
}

/// The hands and eyes inside a session's machine. What is done for two callers at once is done one after the other.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Computer: Send + Sync {
    /// Does `actions` in order, within `longest` together. Stops at the first that fails, lets go of what it held, and so it does when
    /// the caller goes.
    ///
    /// # Errors
    /// [`OperationError::Limit`] when too many callers wait; what else can fail, with the action that did.
    async fn perform(&self, browser: BrowserId, actions: Vec<Action>, longest: Duration) -> Result<(), BrokeOff>;

    /// Where the mouse is.
    async fn mouse(&self, browser: BrowserId) -> Result<Point, OperationError>;

    /// Puts text on the clipboard.
    async fn write_clipboard(&self, browser: BrowserId, text: String) -> Result<(), OperationError>;

    /// The text on the clipboard; empty when there is none.
    ///
    /// # Errors
    /// [`OperationError::TooLarge`] when a page put more there than may be read.
    async fn read_clipboard(&self, browser: BrowserId) -> Result<String, OperationError>;
}
