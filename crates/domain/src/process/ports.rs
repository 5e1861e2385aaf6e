//! The port that runs programs.

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;

use super::{Exec, ExecutionResult, Output, ProcessStatus, Signal, Spawn, Spawned, TerminalSize};
use crate::ids::{BrowserId, ProcessId};
use crate::session_operation::OperationError;

/// What a program does, in order. Ends after [`Output::Exit`].
pub type OutputEvents = BoxStream<'static, Result<Output, OperationError>>;

/// Runs programs inside a session's machine, each in a session of its own. What is said of a program that is not there is
/// [`OperationError::Missing`].
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProcessMachine: Send + Sync {
    /// Runs a program to its end. Dropping the future ends the program and all it has started.
    ///
    /// # Errors
    /// [`OperationError::Timeout`] after all of it was killed; [`OperationError::Limit`].
    async fn exec(&self, browser: BrowserId, exec: Exec) -> Result<ExecutionResult, OperationError>;

    /// Starts a program.
    ///
    /// # Errors
    /// [`OperationError::Limit`].
    async fn spawn(&self, browser: BrowserId, spawn: Spawn) -> Result<Spawned, OperationError>;

    /// How a program is.
    async fn status(&self, browser: BrowserId, id: ProcessId) -> Result<ProcessStatus, OperationError>;

    /// Writes to its standard input. Answers how many bytes it took within a few seconds.
    ///
    /// # Errors
    /// [`OperationError::State`] once it has ended or reads no more.
    async fn write(&self, browser: BrowserId, id: ProcessId, data: Bytes) -> Result<u64, OperationError>;

    /// Sends a signal to it and its group.
    ///
    /// # Errors
    /// [`OperationError::State`] once it has ended.
    async fn signal(&self, browser: BrowserId, id: ProcessId, signal: Signal) -> Result<(), OperationError>;

    /// Changes the size of its terminal.
    ///
    /// # Errors
    /// [`OperationError::State`] once it has ended or if it has none.
    async fn resize(&self, browser: BrowserId, id: ProcessId, size: TerminalSize) -> Result<(), OperationError>;

    /// What it does, from the output that is kept on.
    ///
    /// # Errors
    /// [`OperationError::Limit`].
    async fn output(&self, browser: BrowserId, id: ProcessId) -> Result<OutputEvents, OperationError>;
}
