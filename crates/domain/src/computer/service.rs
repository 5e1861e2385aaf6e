//! What can be done with a session's mouse, keyboard and clipboard.

use std::sync::Arc;
use std::time::Duration;

use super::input::{parse_batch, parse_clipboard};
use super::{Action, ActionRequest, BatchItem, BrokeOff, Computer, Point};
use crate::session::{Activity, Session};
use crate::session_operation::{OperationError, enter};

/// What every call gets besides its pauses: it may wait for another one, and the page for the machine.
const WORK_TIMEOUT: Duration = Duration::from_secs(60);
/// What an event may take at most on a machine under load.
const EVENT: Duration = Duration::from_millis(5);

/// The use cases of computer control.
#[derive(Clone)]
pub struct Computers {
    computer: Arc<dyn Computer>,
    activity: Activity,
}

impl Computers {
    /// Computer control by the hands of `computer`.
    #[must_use]
    pub fn new(computer: Arc<dyn Computer>, activity: Activity) -> Self {
        Self { computer, activity }
    }

    /// Does one thing.
    ///
    /// # Errors
    /// See [`ActionRequest::parse`] and [`Computer::perform`].
    pub async fn perform(&self, session: &Session, request: ActionRequest) -> Result<(), OperationError> {
        let action = request.parse(session.shape.viewport)?;
        self.all(session, vec![action]).await.map_err(|broke| broke.error)
    }

    /// Does several things in order, after all of them were checked, and stops at the first that fails.
    ///
    /// # Errors
    /// Every field that breaks a rule; [`OperationError::Failed`] with the number of the action that failed; see [`Computer::perform`].
    pub async fn batch(&self, session: &Session, items: Option<Vec<BatchItem>>) -> Result<(), OperationError> {
        let actions = parse_batch(items, session.shape.viewport)?;
        self.all(session, actions).await.map_err(|broke| match broke.at {
            Some(at) => OperationError::Failed(format!("actions[{at}]: {}", broke.error)),
            None => broke.error,
        })
    }

    /// Does what is known to be possible: what a viewer's own mouse and keyboard do.
    ///
    /// # Errors
    /// See [`Computer::perform`].
    pub async fn all(&self, session: &Session, actions: Vec<Action>) -> Result<(), BrokeOff> {
        let entered = enter(session, &self.activity)?;
        let longest = actions.iter().map(longest).fold(WORK_TIMEOUT, Duration::saturating_add);
        self.computer.perform(entered.browser, actions, longest).await
    }

    /// Where the mouse is.
    ///
    /// # Errors
    /// See [`Computer::mouse`].
    pub async fn mouse(&self, session: &Session) -> Result<Point, OperationError> {
        let entered = enter(session, &self.activity)?;
        self.computer.mouse(entered.browser).await
    }

    /// Puts text on the clipboard.
    ///
    /// # Errors
    /// The text is absent, or longer than [`MAX_CLIPBOARD`](super::MAX_CLIPBOARD); see [`Computer::write_clipboard`].
    pub async fn write_clipboard(&self, session: &Session, text: Option<String>) -> Result<(), OperationError> {
        let text = parse_clipboard(text)?;
        let entered = enter(session, &self.activity)?;
        self.computer.write_clipboard(entered.browser, text).await
    }

    /// The text on the clipboard.
    ///
    /// # Errors
    /// See [`Computer::read_clipboard`].
    pub async fn read_clipboard(&self, session: &Session) -> Result<String, OperationError> {
        let entered = enter(session, &self.activity)?;
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
