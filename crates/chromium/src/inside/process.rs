//! Programs, run by the agent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::process::{self as words, EXEC, KILL, OUTPUT, ProcessName, RESIZE, SPAWN, STATUS, STDIN};
use casement_domain::ids::{BrowserId, ProcessId};
use casement_domain::process::{
    Exec, ExecutionResult, Output, OutputEvents, OutputStream, ProcessMachine, ProcessState, ProcessStatus, Program,
    Signal, Spawn, Spawned, TerminalSize,
};
use casement_domain::session_operation::OperationError;

use super::lines::{Lines, decoded, encoded, moment};
use super::operation_error;
use crate::engine::Engine;
use crate::fault::{Condition, OUT_OF_MEMORY, lost};
use crate::running::Running;

/// What the agent answers from its memory, or by starting a program.
const QUICK: Duration = Duration::from_secs(20);
/// What a program reads within a few seconds.
const WRITE: Duration = Duration::from_secs(30);
/// How much longer than a program's own time its answer may take: all that it has started is looked for.
const ENDING: Duration = Duration::from_secs(20);
/// Longest first line of a program's answer.
const HEAD: usize = 4 << 10;
/// What a program answers that the kernel has killed.
const KILLED: i32 = 128 + 9;

#[async_trait]
impl ProcessMachine for Engine {
    async fn exec(&self, browser: BrowserId, exec: Exec) -> Result<ExecutionResult, OperationError> {
        let running = self.running(browser)?;
        let Exec { program: wanted, within } = exec;
        let asked = words::Exec { program: program(wanted), timeout_ms: milliseconds(within) };
        let answer = running.agent.download(EXEC, &asked, within + ENDING).await;
        let answer = answer.map_err(|error| timed(&running, &error, within))?;
        let mut lines = Lines::new(Arc::clone(&running), answer, HEAD);
        let told: words::Executed = lines.first().await?;
        if told.exit_code == KILLED && running.condition() == Condition::OutOfMemory {
            return Err(lost(OUT_OF_MEMORY).into());
        }
        Ok(ExecutionResult {
            exit_code: told.exit_code,
            duration_ms: told.duration_ms,
            stdout_bytes: told.stdout_bytes,
            stderr_bytes: told.stderr_bytes,
            stdout_dropped: told.stdout_dropped,
            stderr_dropped: told.stderr_dropped,
            output: lines.rest(),
        })
    }

    async fn spawn(&self, browser: BrowserId, spawn: Spawn) -> Result<Spawned, OperationError> {
        let running = self.running(browser)?;
        let asked = words::Spawn {
            process_id: spawn.id.to_string(),
            program: program(spawn.program),
            terminal: spawn.terminal.map(size),
            timeout_ms: spawn.within.map(milliseconds),
        };
        let spawned = running.agent.call(SPAWN, &asked, QUICK).await;
        let told: words::Spawned = spawned.map_err(|error| operation_error(&running, &error))?;
        Ok(Spawned { id: spawn.id, pid: told.pid, started_at: moment(told.started_at_ms)? })
    }

    async fn status(&self, browser: BrowserId, id: ProcessId) -> Result<ProcessStatus, OperationError> {
        let running = self.running(browser)?;
        let told = running.agent.call(STATUS, &name(id), QUICK).await;
        let told: words::ProcessStatus = told.map_err(|error| operation_error(&running, &error))?;
        let state = told.exit_code.map_or(ProcessState::Running, ProcessState::Exited);
        Ok(ProcessStatus { state, cpu_pct: told.cpu_pct, mem_bytes: told.mem_bytes })
    }

    async fn write(&self, browser: BrowserId, id: ProcessId, data: Bytes) -> Result<u64, OperationError> {
        let running = self.running(browser)?;
        let asked = words::Stdin { process_id: id.to_string(), data_b64: encoded(&data) };
        let written = running.agent.call(STDIN, &asked, WRITE).await;
        let written: words::Written = written.map_err(|error| operation_error(&running, &error))?;
        Ok(written.written_bytes)
    }

    async fn signal(&self, browser: BrowserId, id: ProcessId, signal: Signal) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let signal = match signal {
            Signal::Term => words::Signal::Term,
            Signal::Kill => words::Signal::Kill,
            Signal::Int => words::Signal::Int,
            Signal::Hup => words::Signal::Hup,
        };
        let asked = words::Kill { process_id: id.to_string(), signal };
        running.agent.command(KILL, &asked, QUICK).await.map_err(|error| operation_error(&running, &error))
    }

    async fn resize(&self, browser: BrowserId, id: ProcessId, to: TerminalSize) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let asked = words::Resize { process_id: id.to_string(), size: size(to) };
        running.agent.command(RESIZE, &asked, QUICK).await.map_err(|error| operation_error(&running, &error))
    }

    async fn output(&self, browser: BrowserId, id: ProcessId) -> Result<OutputEvents, OperationError> {
        let running = self.running(browser)?;
        let lines = running.agent.download(OUTPUT, &name(id), QUICK).await;
        let lines = lines.map_err(|error| operation_error(&running, &error))?;
        Ok(Lines::new(running, lines, words::MAX_OUTPUT_LINE).told(output))
    }
}

fn program(program: Program) -> words::Program {
    let Program { command, args, cwd, env } = program;
    words::Program { command, args, cwd, env }
}

fn size(TerminalSize { cols, rows }: TerminalSize) -> words::TerminalSize {
    words::TerminalSize { cols, rows }
}

fn name(id: ProcessId) -> ProcessName {
    ProcessName { process_id: id.to_string() }
}

fn output(told: words::Output) -> Result<Output, OperationError> {
    Ok(match told {
        words::Output::Data { stream, data_b64, dropped } => {
            let stream = match stream {
                words::OutputStream::Stdout => OutputStream::Stdout,
                words::OutputStream::Stderr => OutputStream::Stderr,
            };
            Output::Data { stream, data: decoded(&data_b64)?, dropped }
        }
        words::Output::Exit { exit_code } => Output::Exit { exit_code },
    })
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A failure of something that has a time of its own.
pub(super) fn timed(running: &Running, error: &ClientError, within: Duration) -> OperationError {
    match error {
        ClientError::Refused(body) if body.code == ErrorCode::TimedOut => {
            OperationError::Timeout { seconds: u32::try_from(within.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX) }
        }
        other => operation_error(running, other),
    }
}
