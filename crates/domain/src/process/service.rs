//! The use cases of programs.

use std::sync::Arc;

use super::{
    ExecInput, ExecutionResult, KillInput, OutputEvents, ProcessMachine, ProcessStatus, ResizeInput, SpawnInput,
    Spawned, StdinInput,
};
use crate::clock::IdSource;
use crate::ids::ProcessId;
use crate::session::{Activity, Session};
use crate::session_operation::{OperationError, enter};

/// The use cases of programs.
#[derive(Clone)]
pub struct Processes {
    machine: Arc<dyn ProcessMachine>,
    activity: Activity,
    ids: Arc<dyn IdSource>,
}

impl Processes {
    /// Programs inside of what `machine` runs.
    #[must_use]
    pub fn new(machine: Arc<dyn ProcessMachine>, activity: Activity, ids: Arc<dyn IdSource>) -> Self {
        Self { machine, activity, ids }
    }

    /// Runs a program to its end. Dropping the future ends the program and all it has started.
    ///
    /// # Errors
    /// See [`ExecInput::parse`] and [`ProcessMachine::exec`].
    pub async fn exec(&self, session: &Session, input: ExecInput) -> Result<ExecutionResult, OperationError> {
        let exec = input.parse()?;
        let entered = enter(session, &self.activity)?;
        let executed = self.machine.exec(entered.browser, exec).await?;
        let ExecutionResult {
            exit_code,
            duration_ms,
            stdout_bytes,
            stderr_bytes,
            stdout_dropped,
            stderr_dropped,
            output,
        } = executed;
        let output = entered.during(output);
        Ok(ExecutionResult {
            exit_code,
            duration_ms,
            stdout_bytes,
            stderr_bytes,
            stdout_dropped,
            stderr_dropped,
            output,
        })
    }

    /// Starts a program.
    ///
    /// # Errors
    /// See [`SpawnInput::parse`] and [`ProcessMachine::spawn`].
    pub async fn spawn(&self, session: &Session, input: SpawnInput) -> Result<Spawned, OperationError> {
        let spawn = input.parse(ProcessId::mint(self.ids.as_ref()))?;
        let entered = enter(session, &self.activity)?;
        self.machine.spawn(entered.browser, spawn).await
    }

    /// How a program is.
    ///
    /// # Errors
    /// See [`ProcessMachine::status`].
    pub async fn status(&self, session: &Session, which: &str) -> Result<ProcessStatus, OperationError> {
        let id = id(which)?;
        let entered = enter(session, &self.activity)?;
        self.machine.status(entered.browser, id).await
    }

    /// Writes to its standard input. Answers how many bytes it took.
    ///
    /// # Errors
    /// See [`StdinInput::parse`] and [`ProcessMachine::write`].
    pub async fn write(&self, session: &Session, which: &str, input: StdinInput) -> Result<u64, OperationError> {
        let id = id(which)?;
        let data = input.parse()?;
        let entered = enter(session, &self.activity)?;
        self.machine.write(entered.browser, id, data).await
    }

    /// Sends a signal to a program.
    ///
    /// # Errors
    /// See [`KillInput::parse`] and [`ProcessMachine::signal`].
    pub async fn kill(&self, session: &Session, which: &str, input: KillInput) -> Result<(), OperationError> {
        let id = id(which)?;
        let signal = input.parse()?;
        let entered = enter(session, &self.activity)?;
        self.machine.signal(entered.browser, id, signal).await
    }

    /// Changes the size of a program's terminal.
    ///
    /// # Errors
    /// See [`ResizeInput::parse`] and [`ProcessMachine::resize`].
    pub async fn resize(&self, session: &Session, which: &str, input: ResizeInput) -> Result<(), OperationError> {
        let id = id(which)?;
        let size = input.parse()?;
        let entered = enter(session, &self.activity)?;
        self.machine.resize(entered.browser, id, size).await
    }

    /// What a program does, from the output that is kept on. As long as somebody listens the session is in use.
    ///
    /// # Errors
    /// See [`ProcessMachine::output`].
    pub async fn output(&self, session: &Session, which: &str) -> Result<OutputEvents, OperationError> {
        let id = id(which)?;
        let entered = enter(session, &self.activity)?;
        let events = self.machine.output(entered.browser, id).await?;
        Ok(entered.during(events))
    }
}

fn id(which: &str) -> Result<ProcessId, OperationError> {
    which.parse().map_err(|_| OperationError::Missing(format!("process {which} not found")))
}
