//! The use cases of programs.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Exec, ExecutionResult, OutputEvents, ProcessMachine, ProcessStatus, ProgramRequest, Signal, Spawn, Spawned,
    TerminalSize,
};
use crate::clock::IdSource;
use crate::engine::Capability;
use crate::field::required;
use crate::ids::ProcessId;
use crate::session::Session;
use crate::session_operation::{OperationError, SessionOperations};

/// The use cases of programs.
#[derive(Clone)]
pub struct Processes {
    machine: Arc<dyn ProcessMachine>,
    operations: SessionOperations,
    ids: Arc<dyn IdSource>,
}

impl Processes {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn ProcessMachine>, operations: SessionOperations, ids: Arc<dyn IdSource>) -> Self {
        Self { machine, operations, ids }
    }

    /// Runs a program to its end. Dropping the future ends the program and its child processes.
    ///
    /// # Errors
    /// See [`ProcessMachine::exec`].
    pub async fn exec(&self, session: &Session, exec: Exec) -> Result<ExecutionResult, OperationError> {
        let entered = self.operations.begin(session, Capability::Processes)?;
        let mut executed = self.machine.exec(entered.browser, exec).await?;
        executed.output = entered.during(executed.output);
        Ok(executed)
    }

    /// Starts a program. The timeout is 1 to 3600 seconds, default none; the sides of the terminal are 1 to 1000
    /// characters, default 80 columns by 24 rows.
    ///
    /// # Errors
    /// Returns every field that breaks a rule, or [`OperationError::NotSupported`] for another user than the sandbox's.
    /// See also [`ProcessMachine::spawn`].
    pub async fn spawn(
        &self,
        session: &Session,
        program: ProgramRequest,
        timeout_sec: Option<i64>,
        allocate_tty: bool,
        cols: Option<i64>,
        rows: Option<i64>,
    ) -> Result<Spawned, OperationError> {
        let id = ProcessId::mint(self.ids.as_ref());
        let spawn = Spawn::parse(id, program, timeout_sec, allocate_tty, cols, rows)?;
        let entered = self.operations.begin(session, Capability::Processes)?;
        self.machine.spawn(entered.browser, spawn).await
    }

    /// Returns the status of a program.
    ///
    /// # Errors
    /// See [`ProcessMachine::status`].
    pub async fn status(&self, session: &Session, which: &str) -> Result<ProcessStatus, OperationError> {
        let id = Self::id(which)?;
        let entered = self.operations.begin(session, Capability::Processes)?;
        self.machine.status(entered.browser, id).await
    }

    /// Writes to the standard input of a program, and ends it with `is_last`. Returns the number of bytes that it accepted.
    ///
    /// # Errors
    /// See [`ProcessMachine::write`].
    pub async fn write(
        &self,
        session: &Session,
        id: ProcessId,
        data: Bytes,
        is_last: bool,
    ) -> Result<u64, OperationError> {
        let entered = self.operations.begin(session, Capability::Processes)?;
        self.machine.write(entered.browser, id, data, is_last).await
    }

    /// Sends a signal to a program.
    ///
    /// # Errors
    /// See [`Signal::parse`] and [`ProcessMachine::signal`].
    pub async fn kill(&self, session: &Session, which: &str, signal: Option<&str>) -> Result<(), OperationError> {
        let id = Self::id(which)?;
        let signal = required("signal", signal, Signal::parse)?;
        let entered = self.operations.begin(session, Capability::Processes)?;
        self.machine.signal(entered.browser, id, signal).await
    }

    /// Resizes the terminal of a program.
    ///
    /// # Errors
    /// See [`TerminalSize::parse`] and [`ProcessMachine::resize`].
    pub async fn resize(
        &self,
        session: &Session,
        which: &str,
        cols: Option<i64>,
        rows: Option<i64>,
    ) -> Result<(), OperationError> {
        let id = Self::id(which)?;
        let size = TerminalSize::parse(cols, rows)?;
        let entered = self.operations.begin(session, Capability::Processes)?;
        self.machine.resize(entered.browser, id, size).await
    }

    /// Returns the events of a program, from the buffered output on. The session is in use until the stream is dropped.
    ///
    /// # Errors
    /// See [`ProcessMachine::output`].
    pub async fn output(&self, session: &Session, which: &str) -> Result<OutputEvents, OperationError> {
        let id = Self::id(which)?;
        let entered = self.operations.begin(session, Capability::Processes)?;
        let events = self.machine.output(entered.browser, id).await?;
        Ok(entered.during(events))
    }

    /// Parses the id of a program.
    ///
    /// # Errors
    /// Returns [`OperationError::Missing`] for a text that is no id.
    pub fn id(text: &str) -> Result<ProcessId, OperationError> {
        text.parse().map_err(|_| OperationError::Missing(format!("process {text} not found")))
    }
}
