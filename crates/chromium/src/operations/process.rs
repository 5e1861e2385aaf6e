//! Processes run by the agent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::process::{self as wire, EXEC, KILL, OUTPUT, ProcessName, RESIZE, SPAWN, STATUS, STDIN};
use casement_domain::ids::{BrowserId, ProcessId};
use casement_domain::process::{
    Exec, ExecutionResult, Output, OutputEvents, OutputStream, ProcessMachine, ProcessState, ProcessStatus, Program,
    Signal, Spawn, Spawned, TerminalSize,
};
use casement_domain::session_operation::OperationError;

use super::lines::{Lines, decoded, encoded, parse_timestamp};
use super::operation_error;
use crate::engine::Engine;
use crate::fault::{Condition, OUT_OF_MEMORY, lost};
use crate::running::Running;

/// The timeout of requests that the agent answers from memory, or by starting a program.
const QUICK_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of writing to a program's standard input.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Added to a program's own timeout for its response: the agent searches for all its descendants.
const REPORT_GRACE: Duration = Duration::from_secs(20);
/// The longest first line of a program's response, in bytes.
const MAX_HEAD: usize = 4 << 10;
/// The exit code of a program that the kernel killed.
const KILLED_EXIT_CODE: i32 = 128 + 9;

#[async_trait]
impl ProcessMachine for Engine {
    async fn exec(&self, browser: BrowserId, exec: Exec) -> Result<ExecutionResult, OperationError> {
        let running = self.running(browser)?;
        let Exec { program: wanted, within } = exec;
        let request = wire::Exec { program: program(wanted), timeout_ms: milliseconds(within) };
        let answer = running.agent.download(EXEC, &request, within + REPORT_GRACE).await;
        let answer = answer.map_err(|error| timed(&running, &error, within))?;
        let mut lines = Lines::new(Arc::clone(&running), answer, MAX_HEAD);
        let received: wire::Executed = lines.first().await?;
        if received.exit_code == KILLED_EXIT_CODE && running.condition() == Condition::OutOfMemory {
            return Err(lost(OUT_OF_MEMORY).into());
        }
        Ok(ExecutionResult {
            exit_code: received.exit_code,
            duration_ms: received.duration_ms,
            stdout_bytes: received.stdout_bytes,
            stderr_bytes: received.stderr_bytes,
            stdout_dropped: received.stdout_dropped,
            stderr_dropped: received.stderr_dropped,
            output: lines.rest(),
        })
    }

    async fn spawn(&self, browser: BrowserId, spawn: Spawn) -> Result<Spawned, OperationError> {
        let request = wire::Spawn {
            process_id: spawn.id.to_string(),
            program: program(spawn.program),
            terminal: spawn.terminal.map(size),
            timeout_ms: spawn.within.map(milliseconds),
        };
        let received: wire::Spawned = self.agent_call(browser, SPAWN, &request, QUICK_TIMEOUT).await?;
        Ok(Spawned { id: spawn.id, pid: received.pid, started_at: parse_timestamp(received.started_at_ms)? })
    }

    async fn status(&self, browser: BrowserId, id: ProcessId) -> Result<ProcessStatus, OperationError> {
        let received: wire::ProcessStatus = self.agent_call(browser, STATUS, &name(id), QUICK_TIMEOUT).await?;
        let state = received.exit_code.map_or(ProcessState::Running, ProcessState::Exited);
        Ok(ProcessStatus { state, cpu_pct: received.cpu_pct, mem_bytes: received.mem_bytes })
    }

    async fn write(
        &self,
        browser: BrowserId,
        id: ProcessId,
        data: Bytes,
        is_last: bool,
    ) -> Result<u64, OperationError> {
        let request = wire::Stdin { process_id: id.to_string(), data_b64: encoded(&data), is_last };
        let written: wire::Written = self.agent_call(browser, STDIN, &request, WRITE_TIMEOUT).await?;
        Ok(written.written_bytes)
    }

    async fn signal(&self, browser: BrowserId, id: ProcessId, signal: Signal) -> Result<(), OperationError> {
        let signal = match signal {
            Signal::Term => wire::Signal::Term,
            Signal::Kill => wire::Signal::Kill,
            Signal::Int => wire::Signal::Int,
            Signal::Hup => wire::Signal::Hup,
        };
        self.agent_command(browser, KILL, &wire::Kill { process_id: id.to_string(), signal }, QUICK_TIMEOUT).await
    }

    async fn resize(&self, browser: BrowserId, id: ProcessId, to: TerminalSize) -> Result<(), OperationError> {
        let request = wire::Resize { process_id: id.to_string(), size: size(to) };
        self.agent_command(browser, RESIZE, &request, QUICK_TIMEOUT).await
    }

    async fn output(&self, browser: BrowserId, id: ProcessId) -> Result<OutputEvents, OperationError> {
        let lines = self.agent_lines(browser, OUTPUT, &name(id), QUICK_TIMEOUT, wire::MAX_OUTPUT_LINE).await?;
        Ok(lines.converted(output))
    }
}

fn program(program: Program) -> wire::Program {
    let Program { command, args, cwd, env } = program;
    wire::Program { command, args, cwd, env }
}

fn size(TerminalSize { cols, rows }: TerminalSize) -> wire::TerminalSize {
    wire::TerminalSize { cols, rows }
}

fn name(id: ProcessId) -> ProcessName {
    ProcessName { process_id: id.to_string() }
}

fn output(received: wire::Output) -> Result<Output, OperationError> {
    Ok(match received {
        wire::Output::Data { stream, data_b64, dropped } => {
            let stream = match stream {
                wire::OutputStream::Stdout => OutputStream::Stdout,
                wire::OutputStream::Stderr => OutputStream::Stderr,
            };
            Output::Data { stream, data: decoded(&data_b64)?, dropped }
        }
        wire::Output::Exit { exit_code } => Output::Exit { exit_code },
    })
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Converts the failure of an operation whose own timeout is `within`.
pub(super) fn timed(running: &Running, error: &ClientError, within: Duration) -> OperationError {
    match error {
        ClientError::Refused(body) if body.code == ErrorCode::TimedOut => {
            OperationError::Timeout { seconds: u32::try_from(within.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX) }
        }
        other => operation_error(running, other),
    }
}
