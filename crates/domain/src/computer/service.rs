//! The use cases of a session's mouse, keyboard and clipboard.

use std::sync::Arc;
use std::time::Duration;

use super::input::{parse_batch, parse_clipboard};
use super::{Action, ActionError, ActionRequest, BatchItem, Computer, Point};
use crate::engine::Capability;
use crate::session::Session;
use crate::session_operation::{OperationError, SessionOperations};

/// The time of every call in addition to its pauses, because it may wait for another call, and the page for the CPU.
const WORK_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum duration of one input event on a machine under load.
const EVENT: Duration = Duration::from_millis(5);

/// The use cases of computer control.
#[derive(Clone)]
pub struct Computers {
    computer: Arc<dyn Computer>,
    operations: SessionOperations,
}

impl Computers {
    /// Creates the use cases.
    #[must_use]
    pub fn new(computer: Arc<dyn Computer>, operations: SessionOperations) -> Self {
        Self { computer, operations }
    }

    /// Performs one action.
    ///
    /// # Errors
    /// See [`ActionRequest::parse`] and [`Computer::perform`].
    pub async fn perform(&self, session: &Session, request: ActionRequest) -> Result<(), OperationError> {
        let action = request.parse(session.shape.viewport)?;
        self.all(session, vec![action]).await.map_err(|broke| broke.error)
    }

    /// Performs several actions in order, after all of them were checked. Stops at the first action that fails.
    ///
    /// # Errors
    /// Returns every field that breaks a rule; [`OperationError::Failed`] with the index of the action that failed; see
    /// [`Computer::perform`].
    pub async fn batch(&self, session: &Session, items: Option<Vec<BatchItem>>) -> Result<(), OperationError> {
        let actions = parse_batch(items, session.shape.viewport)?;
        self.all(session, actions).await.map_err(|broke| match broke.at {
            Some(at) => OperationError::Failed(format!("actions[{at}]: {}", broke.error)),
            None => broke.error,
        })
    }

    /// Performs actions that need no check, as those of the mouse and keyboard of a live view.
    ///
    /// # Errors
    /// See [`Computer::perform`].
    pub async fn all(&self, session: &Session, actions: Vec<Action>) -> Result<(), ActionError> {
        let entered = self.operations.begin(session, Capability::MouseAndKeyboard)?;
        let longest = actions.iter().map(longest).fold(WORK_TIMEOUT, Duration::saturating_add);
        self.computer.perform(entered.browser, actions, longest).await
    }

    /// Returns the position of the mouse.
    ///
    /// # Errors
    /// See [`Computer::mouse`].
    pub async fn mouse(&self, session: &Session) -> Result<Point, OperationError> {
        let entered = self.operations.begin(session, Capability::MouseAndKeyboard)?;
        self.computer.mouse(entered.browser).await
    }

    /// Writes text to the clipboard.
    ///
    /// # Errors
    /// The text is absent or longer than [`MAX_CLIPBOARD`](super::MAX_CLIPBOARD); see [`Computer::write_clipboard`].
    pub async fn write_clipboard(&self, session: &Session, text: Option<String>) -> Result<(), OperationError> {
        let text = parse_clipboard(text)?;
        let entered = self.operations.begin(session, Capability::Clipboard)?;
        self.computer.write_clipboard(entered.browser, text).await
    }

    /// Returns the text of the clipboard.
    ///
    /// # Errors
    /// See [`Computer::read_clipboard`].
    pub async fn read_clipboard(&self, session: &Session) -> Result<String, OperationError> {
        let entered = self.operations.begin(session, Capability::Clipboard)?;
        self.computer.read_clipboard(entered.browser).await
    }
}

fn longest(action: &Action) -> Duration {
    let events = match action {
        Action::Type(typed) => typed.text.len() * 2,
        Action::Drag(drag) => match drag.motion {
            super::DragMotion::Steps { per_segment, .. } => drag.path.len() * per_segment as usize,
            super::DragMotion::Smooth(_) => drag.path.len(),
        },
        Action::Scroll(scroll) => (scroll.right.unsigned_abs() + scroll.down.unsigned_abs()) as usize,
        _ => 100,
    };
    action.pauses() + EVENT.saturating_mul(u32::try_from(events).unwrap_or(u32::MAX))
}
