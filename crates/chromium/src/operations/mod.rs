//! Operations in a session's sandbox, requested from its agent: one module per area.

mod browser_state;
mod computer;
mod curl;
mod extension;
mod fs;
mod lines;
mod live_view;
mod login_page;
mod process;
mod profile;
mod replay;
mod script;
mod session_log;
mod telemetry;
mod webmcp;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use casement_agent_protocol::client::{ClientError, Download};
use casement_agent_protocol::curl::Upstream;
use casement_agent_protocol::{ErrorBody, ErrorCode};
use casement_domain::field::{FieldCode, FieldError, InvalidInput, InvalidValue};
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::{ByteStream, OperationError, UpstreamFault};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::lines::Lines;
use crate::engine::Engine;
use crate::fault::{Condition, shorten};
use crate::running::Running;

/// Converts a failed call to the domain's error.
pub(crate) fn operation_error(running: &Running, error: &ClientError) -> OperationError {
    match error {
        ClientError::Refused(body) => refused(body).unwrap_or_else(|| running.failed(error).into()),
        ClientError::Timeout(within) if running.condition() == Condition::Alive => {
            OperationError::Timeout { seconds: u32::try_from(within.as_secs()).unwrap_or(u32::MAX) }
        }
        _ => running.failed(error).into(),
    }
}

/// Like [`operation_error`], for an operation that agents of earlier versions do not have.
pub(crate) fn new_operation_error(running: &Running, error: &ClientError) -> OperationError {
    match error {
        ClientError::Refused(body) if body.code == ErrorCode::NotFound => {
            OperationError::NotSupported("the session was started by an earlier version of this server".to_owned())
        }
        _ => operation_error(running, error),
    }
}

impl Engine {
    /// Calls an operation with a JSON response.
    async fn agent_call<T: DeserializeOwned>(
        &self,
        browser: BrowserId,
        path: &'static str,
        request: &(impl Serialize + Sync),
        within: Duration,
    ) -> Result<T, OperationError> {
        let running = self.running(browser)?;
        running.agent.call(path, request, within).await.map_err(|error| operation_error(&running, &error))
    }

    /// Calls an operation with an empty response.
    async fn agent_command(
        &self,
        browser: BrowserId,
        path: &'static str,
        request: &(impl Serialize + Sync),
        within: Duration,
    ) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        running.agent.command(path, request, within).await.map_err(|error| operation_error(&running, &error))
    }

    /// Calls an operation with a streamed response. The timeout applies to its beginning.
    async fn agent_download(
        &self,
        browser: BrowserId,
        path: &'static str,
        request: &(impl Serialize + Sync),
        within: Duration,
    ) -> Result<(Arc<Running>, Download), OperationError> {
        let running = self.running(browser)?;
        let started = running.agent.download(path, request, within).await;
        let started = started.map_err(|error| operation_error(&running, &error))?;
        Ok((running, started))
    }

    /// Calls an operation whose response is lines of JSON, none longer than `max_line`.
    async fn agent_lines(
        &self,
        browser: BrowserId,
        path: &'static str,
        request: &(impl Serialize + Sync),
        within: Duration,
        max_line: usize,
    ) -> Result<Lines, OperationError> {
        let (running, lines) = self.agent_download(browser, path, request, within).await?;
        Ok(Lines::new(running, lines, max_line))
    }
}

/// Returns the error of a request that the agent refused; `None` for faults of the browser or the agent.
fn refused(body: &ErrorBody) -> Option<OperationError> {
    let text = shorten(body.message.clone());
    Some(match body.code {
        ErrorCode::OutOfRange => field(body, FieldCode::OutOfRange, text),
        ErrorCode::NotAllowed => field(body, FieldCode::NotAllowed, text),
        ErrorCode::InvalidFormat => field(body, FieldCode::InvalidFormat, text),
        ErrorCode::NotADirectory => field(body, FieldCode::NotADirectory, text),
        ErrorCode::IsADirectory => field(body, FieldCode::IsADirectory, text),
        ErrorCode::NotSupported => OperationError::NotSupported(text),
        ErrorCode::Missing => OperationError::Missing(text),
        ErrorCode::PathForbidden => OperationError::Forbidden(text),
        ErrorCode::Exists => OperationError::Exists(text),
        ErrorCode::InvalidState => OperationError::State(text),
        ErrorCode::LimitReached => OperationError::Limit(text),
        ErrorCode::TooLarge => OperationError::TooLarge(text),
        ErrorCode::DiskFull => OperationError::DiskFull(text),
        ErrorCode::BrokenBody => OperationError::Broken(text),
        ErrorCode::Upstream => OperationError::Upstream { fault: upstream(body.upstream), message: text },
        ErrorCode::Failed => OperationError::Failed(text),
        ErrorCode::BrowserHung
        | ErrorCode::NotReady
        | ErrorCode::RemoteAway
        | ErrorCode::BadRequest
        | ErrorCode::NotFound
        | ErrorCode::UnsupportedVersion
        | ErrorCode::TimedOut
        | ErrorCode::Internal => return None,
    })
}

/// Returns the fault of the upstream; older agents report none.
fn upstream(received: Option<Upstream>) -> UpstreamFault {
    match received {
        Some(Upstream::Dns) => UpstreamFault::Dns,
        Some(Upstream::Tls) => UpstreamFault::Tls,
        Some(Upstream::Proxy) => UpstreamFault::Proxy,
        Some(Upstream::HttpStatus) => UpstreamFault::HttpStatus,
        Some(Upstream::Connect) | None => UpstreamFault::Connect,
    }
}

/// Returns the error of a field that only the agent could check.
fn field(body: &ErrorBody, code: FieldCode, message: String) -> OperationError {
    match &body.field {
        Some(field) => InvalidInput::one(FieldError { field: shorten(field.clone()), code, message }).into(),
        None => InvalidInput::of("body", InvalidValue::new(code, message)).into(),
    }
}

/// Returns an operation's bytes as a stream. Holds `running`, so that an error can report the condition of the sandbox.
pub(crate) fn stream(running: Arc<Running>, download: Download) -> ByteStream {
    download.map_err(move |error| operation_error(&running, &error)).boxed()
}

/// The error of a caller's bytes for the agent. Stored here, because the agent only sees that the stream breaks.
pub(crate) struct Content {
    fault: Arc<Mutex<Option<OperationError>>>,
}

impl Content {
    /// Converts the bytes for the agent's client. Returns the store of their error and the converted bytes.
    pub(crate) fn of(content: ByteStream) -> (Self, impl Stream<Item = io::Result<Bytes>> + Send + 'static) {
        let fault = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&fault);
        let content = content.map_err(move |error| {
            let text = error.to_string();
            *noted.lock() = Some(error);
            io::Error::other(text)
        });
        (Self { fault }, content)
    }

    /// Returns the error of the caller's bytes, if they had one.
    pub(crate) fn fault(self) -> Option<OperationError> {
        self.fault.lock().take()
    }

    /// Returns the cause of a failed upload: the error of the caller's bytes if they had one, else the agent's error.
    pub(crate) fn failed(self, running: &Running, error: &ClientError) -> OperationError {
        self.fault().unwrap_or_else(|| operation_error(running, error))
    }
}
