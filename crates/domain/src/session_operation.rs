//! What everything that is done inside a session's machine shares: how an operation begins, and how it fails.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_core::stream::BoxStream;

use crate::browser::{EngineError, Viewport};
use crate::field::InvalidInput;
use crate::ids::{BrowserId, SessionId};
use crate::session::{Activity, ActivityGuard, Session};

/// Bytes on their way into a session or out of it. After the first error nothing more comes.
pub type ByteStream = BoxStream<'static, Result<Bytes, OperationError>>;

/// What failed on the way to something outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamFault {
    /// Its name is not known.
    Dns,
    /// It could not be reached, or broke off.
    Connect,
    /// No secure connection came to be.
    Tls,
    /// The session's proxy could not be used.
    Proxy,
    /// It answered something that is no answer to what was asked.
    HttpStatus,
}

/// An operation inside a session was not done.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// Valid, but not possible in this installation: root in the sandbox, sound in a recording.
    #[error("{0}")]
    NotSupported(String),
    /// What the operation names is not there: a file, a process, a watch, a recording.
    #[error("{0}")]
    Missing(String),
    /// The sandbox's user may not do that to that path.
    #[error("{0}")]
    Forbidden(String),
    /// Something is there already.
    #[error("{0}")]
    Exists(String),
    /// What the operation names is in a state that does not allow it: a process that has exited.
    #[error("{0}")]
    State(String),
    /// A number of things that one session may have is reached.
    #[error("{0}")]
    Limit(String),
    /// More than may be sent in one request.
    #[error("{0}")]
    TooLarge(String),
    /// The session's disk is full: its quota of bytes or of files.
    #[error("{0}")]
    DiskFull(String),
    /// The caller's own body broke off or cannot be read.
    #[error("{0}")]
    Broken(String),
    /// The caller's own body stopped coming.
    #[error("the body stopped coming for {seconds} s")]
    Stalled {
        /// The bound.
        seconds: u32,
    },
    /// What the session asked of the web failed.
    #[error("{message}")]
    Upstream {
        /// What failed there.
        fault: UpstreamFault,
        /// For people, safe to show.
        message: String,
    },
    /// What the session asked of the web did not answer in time.
    #[error("no answer within {seconds} s")]
    Unanswered {
        /// The bound.
        seconds: u32,
    },
    /// The part that is wanted lies outside of what there is.
    #[error("the range lies outside of the {size} bytes that there are")]
    OutsideRange {
        /// How many there are.
        size: u64,
    },
    /// The operation's own time is over.
    #[error("not done within {seconds} s")]
    Timeout {
        /// The bound.
        seconds: u32,
    },
    /// It was begun and failed, so that a part of it may have taken effect.
    #[error("{0}")]
    Failed(String),
    /// The browser or the agent beside it failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// An operation that runs inside a session. As long as this lives the session is in use.
#[must_use]
pub struct ActiveOperation {
    /// Which session.
    pub session: SessionId,
    /// Its browser.
    pub browser: BrowserId,
    /// Its display as it is in force.
    pub viewport: Viewport,
    /// Keeps the idle clock from running; goes along with what outlives the call, a stream for example.
    pub guard: ActivityGuard,
}

impl ActiveOperation {
    /// What comes out of the session as long as somebody reads it; until its end the session is in use.
    pub fn during<T: 'static>(self, content: BoxStream<'static, T>) -> BoxStream<'static, T> {
        Box::pin(Held { content, _guard: self.guard })
    }
}

/// A stream that keeps its session in use.
struct Held<T> {
    content: BoxStream<'static, T>,
    _guard: ActivityGuard,
}

impl<T> Stream for Held<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.content.as_mut().poll_next(context)
    }
}

/// Begins an operation inside an active session.
///
/// # Errors
/// [`OperationError::Missing`] for one without a browser.
pub fn enter(session: &Session, activity: &Activity) -> Result<ActiveOperation, OperationError> {
    let missing = || OperationError::Missing(format!("browser session {} not found", session.id));
    let browser = session.browser.filter(|_| session.is_active()).ok_or_else(missing)?;
    let guard = activity.begin(session.id).ok_or_else(missing)?;
    Ok(ActiveOperation { session: session.id, browser, viewport: session.shape.viewport, guard })
}
