//! The begin and the errors of operations inside a session, shared by all kinds of operations.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_core::stream::BoxStream;

use crate::browser::{EngineError, Viewport};
use crate::engine::{Capability, EngineRefused, Engines, check};
use crate::field::InvalidInput;
use crate::ids::{BrowserId, SessionId};
use crate::session::{Activity, ActivityGuard, Session};

/// A stream of bytes into a session or out of it. The first error ends it.
pub type ByteStream = BoxStream<'static, Result<Bytes, OperationError>>;

/// The fault of a request to a server outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamFault {
    /// The name of the server cannot be resolved.
    Dns,
    /// The server could not be reached, or the connection broke.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The session's proxy could not be used.
    Proxy,
    /// The server sent a response that cannot be used: another status, a wrong format or too many bytes.
    HttpStatus,
}

/// The error of an operation inside a session.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The request is valid, but this installation does not support it: root in the sandbox, sound in a recording.
    #[error("{0}")]
    NotSupported(String),
    /// The object that the operation names does not exist: a file, a process, a watch, a recording.
    #[error("{0}")]
    Missing(String),
    /// The user of the sandbox lacks the permission for the path.
    #[error("{0}")]
    Forbidden(String),
    /// The object to create exists already.
    #[error("{0}")]
    Exists(String),
    /// The state of the object does not allow the operation: a process has exited.
    #[error("{0}")]
    State(String),
    /// The session has the maximum number of such objects.
    #[error("{0}")]
    Limit(String),
    /// The content is longer than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// The session's disk is full: its quota of bytes or of files.
    #[error("{0}")]
    DiskFull(String),
    /// The request body broke off or cannot be parsed.
    #[error("{0}")]
    Broken(String),
    /// The request body stopped arriving.
    #[error("the body stopped coming for {seconds} s")]
    Stalled {
        /// The timeout.
        seconds: u32,
    },
    /// A request of the session to the web failed.
    #[error("{message}")]
    Upstream {
        /// The fault.
        fault: UpstreamFault,
        /// The description for people, without secrets.
        message: String,
    },
    /// A request of the session to the web was not answered in time.
    #[error("no answer within {seconds} s")]
    Unanswered {
        /// The timeout.
        seconds: u32,
    },
    /// The requested range lies outside of the content.
    #[error("the range lies outside of the {size} bytes that there are")]
    OutsideRange {
        /// The size of the content in bytes.
        size: u64,
    },
    /// The operation exceeded its timeout.
    #[error("not done within {seconds} s")]
    Timeout {
        /// The timeout.
        seconds: u32,
    },
    /// Something outside of the session that the operation needs does not respond.
    #[error("{0}")]
    Unavailable(String),
    /// The operation failed after it began; a part of it may have taken effect.
    #[error("{0}")]
    Failed(String),
    /// The browser or its agent failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// An operation that runs inside a session. The session is in use until this value is dropped.
#[must_use]
pub struct ActiveOperation {
    /// The session.
    pub session: SessionId,
    /// The browser of the session.
    pub browser: BrowserId,
    /// The current viewport.
    pub viewport: Viewport,
    /// Counts as activity of the session. Anything that outlives the call, such as a stream, takes it along.
    pub guard: ActivityGuard,
}

impl ActiveOperation {
    /// Returns the stream with the guard attached: the session is in use until the stream is dropped.
    pub fn during<T: 'static>(self, content: BoxStream<'static, T>) -> BoxStream<'static, T> {
        Box::pin(Held { content, _guard: self.guard })
    }
}

/// A stream that counts as activity of its session.
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

/// The begin of operations inside sessions.
#[derive(Clone)]
pub struct SessionOperations {
    activity: Activity,
    engines: Arc<dyn Engines>,
}

impl SessionOperations {
    /// Creates it from the activity of sessions and the engines of the installation.
    #[must_use]
    pub fn new(activity: Activity, engines: Arc<dyn Engines>) -> Self {
        Self { activity, engines }
    }

    /// Begins an operation inside an active session, for which the engine of its browser needs `capability`.
    ///
    /// # Errors
    /// [`OperationError::NotSupported`] if the engine lacks the capability; nothing was done.
    /// [`OperationError::Missing`] if the session has ended or has no browser.
    pub fn begin(&self, session: &Session, capability: Capability) -> Result<ActiveOperation, OperationError> {
        let browser = self.observe(session, capability)?;
        let guard = self.activity.begin(session.id).ok_or_else(|| missing(session))?;
        Ok(ActiveOperation { session: session.id, browser, viewport: session.shape.viewport, guard })
    }

    /// Returns the browser of an active session for an operation that only reads what belongs to the session, for which the
    /// engine needs `capability`. It does not count as activity.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn observe(&self, session: &Session, capability: Capability) -> Result<BrowserId, OperationError> {
        self.check(session, capability)?;
        let browser = session.browser.filter(|_| session.is_active());
        browser.ok_or_else(|| missing(session))
    }

    /// Checks that the engine of a session's browser has a capability.
    ///
    /// # Errors
    /// [`EngineRefused`].
    pub fn check(&self, session: &Session, capability: Capability) -> Result<(), EngineRefused> {
        check(&*self.engines, &session.shape.engine, capability)
    }
}

fn missing(session: &Session) -> OperationError {
    OperationError::Missing(format!("browser session {} not found", session.id))
}

impl From<EngineRefused> for OperationError {
    fn from(refused: EngineRefused) -> Self {
        Self::NotSupported(refused.to_string())
    }
}
