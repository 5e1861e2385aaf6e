//! The port that runs programs.

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;

use super::{Exec, ExecutionResult, Output, ProcessStatus, Signal, Spawn, Spawned, TerminalSize};
use crate::ids::{BrowserId, ProcessId};
use crate::session_operation::OperationError;

/// The events of a program in order. The stream ends after [`Output::Exit`].
pub type OutputEvents = BoxStream<'static, Result<Output, OperationError>>;

/// The port that runs programs in a sandbox, each in a process session of its own. Operations on an unknown program
/// fail with [`OperationError::Missing`].
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProcessMachine: Send + Sync {
    /// Runs a program to its end. Dropping the future ends the program and its child processes.
    ///
    /// # Errors
    /// [`OperationError::Timeout`] after the processes were killed; [`OperationError::Limit`] if too many programs run.
    async fn exec(&self, browser: BrowserId, exec: Exec) -> Result<ExecutionResult, OperationError>;

    /// Starts a program.
    ///
    /// # Errors
    /// [`OperationError::Limit`] if too many programs run.
    async fn spawn(&self, browser: BrowserId, spawn: Spawn) -> Result<Spawned, OperationError>;

    /// Returns the status of a program.
    async fn status(&self, browser: BrowserId, id: ProcessId) -> Result<ProcessStatus, OperationError>;

    /// Writes to the standard input; returns the number of bytes that were accepted within a few seconds. With `is_last`,
    /// the input ends once all of them were.
    ///
    /// # Errors
    /// [`OperationError::State`] if the program has ended, or its input has.
    async fn write(&self, browser: BrowserId, id: ProcessId, data: Bytes, is_last: bool)
    -> Result<u64, OperationError>;

    /// Sends a signal to the process group of a program.
    ///
    /// # Errors
    /// [`OperationError::State`] if the program has ended.
    async fn signal(&self, browser: BrowserId, id: ProcessId, signal: Signal) -> Result<(), OperationError>;

    /// Resizes the terminal of a program.
    ///
    /// # Errors
    /// [`OperationError::State`] if the program has ended or has no terminal.
    async fn resize(&self, browser: BrowserId, id: ProcessId, size: TerminalSize) -> Result<(), OperationError>;

    /// Returns the events of a program, from the buffered output on.
    ///
    /// # Errors
    /// [`OperationError::Limit`] if too many callers read outputs of the session.
    async fn output(&self, browser: BrowserId, id: ProcessId) -> Result<OutputEvents, OperationError>;
}
