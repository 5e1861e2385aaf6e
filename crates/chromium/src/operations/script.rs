//! Scripts and the REPL, run by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::repl::{self, EVALUATE, EvaluateCode};
use casement_agent_protocol::script::{
    self as wire, DELETE_EXECUTOR, EXECUTE, EXECUTE_IN, LIST_EXECUTORS, MAX_OUTPUT, MAX_RESULT,
};
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::script::{
    Evaluation, Executor, ExecutorName, NewEvaluation, NewScript, ReplChannel, ReplContent, ScriptEnd, ScriptMachine,
    ScriptTab,
};
use casement_domain::session_operation::OperationError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;

use super::process::milliseconds;
use super::{new_operation_error, operation_error};
use crate::engine::Engine;
use crate::fault::failed;

/// Added to the timeouts of a script: the time to start the script runner on a machine under load.
const LOAD_GRACE: Duration = Duration::from_secs(45);
/// The timeout of requests about executors. Deleting one waits until its script is gone.
const EXECUTOR_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response in bytes. A byte of the two outputs may take six as JSON.
const MAX_RESPONSE: usize = MAX_RESULT + 12 * MAX_OUTPUT + (1 << 20);
/// The longest response of the REPL in bytes: its output, with a mebibyte for the rest.
const MAX_EVALUATION: usize = 6 * repl::MAX_TEXT + repl::MAX_IMAGES + (2 << 20);

#[async_trait]
impl ScriptMachine for Engine {
    async fn execute(&self, browser: BrowserId, script: NewScript) -> Result<ScriptEnd, OperationError> {
        let executor = script.executor.named().map(str::to_owned);
        let path = if executor.is_some() { EXECUTE_IN } else { EXECUTE };
        let request = wire::ExecuteScript {
            code: script.code,
            timeout_ms: milliseconds(script.timeout),
            within_ms: script.within.map(milliseconds),
            executor,
        };
        let received: wire::ScriptEnd = self.run_code(browser, path, &request, script.timeout, MAX_RESPONSE).await?;
        Ok(ScriptEnd {
            success: received.success,
            result: received.result.map(|result| String::from(Box::<str>::from(result))),
            error: received.error,
            stdout: received.stdout,
            stderr: received.stderr,
            tab: received.tab.map(|wire::Tab { target_id, created }| ScriptTab { target_id, created }),
        })
    }

    async fn executors(&self, browser: BrowserId) -> Result<Vec<Executor>, OperationError> {
        let running = self.running(browser)?;
        let listed = running.agent.call::<wire::ExecutorList>(LIST_EXECUTORS, &(), EXECUTOR_TIMEOUT).await;
        let listed = listed.map_err(|error| new_operation_error(&running, &error))?;
        listed.executors.into_iter().map(executor).collect()
    }

    async fn delete_executor(
        &self,
        browser: BrowserId,
        name: ExecutorName,
        close_tab: bool,
    ) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let request = wire::DeleteExecutor { name: name.named().map(str::to_owned), close_tab };
        let deleted = running.agent.command(DELETE_EXECUTOR, &request, EXECUTOR_TIMEOUT).await;
        deleted.map_err(|error| new_operation_error(&running, &error))
    }

    async fn evaluate(&self, browser: BrowserId, code: NewEvaluation) -> Result<Evaluation, OperationError> {
        let request = EvaluateCode {
            code: code.code,
            reset: code.reset,
            timeout_ms: milliseconds(code.timeout),
            within_ms: code.within.map(milliseconds),
        };
        let received: repl::Evaluation =
            self.run_code(browser, EVALUATE, &request, code.timeout, MAX_EVALUATION).await?;
        Ok(Evaluation {
            repl_id: received.repl_id,
            success: received.success,
            content: received.content.into_iter().map(content).collect(),
            is_content_truncated: received.content_truncated,
            duration: Duration::from_millis(received.duration_ms),
            error: received.error,
            stack: received.stack,
            is_terminated: received.terminated,
        })
    }
}

impl Engine {
    /// Runs code of a caller with this timeout.
    async fn run_code<T: DeserializeOwned>(
        &self,
        browser: BrowserId,
        path: &'static str,
        request: &(impl Serialize + Sync),
        timeout: Duration,
        max_response: usize,
    ) -> Result<T, OperationError> {
        // The timeout applies twice: to the wait in the queue, and to the run.
        let within = timeout * 2 + LOAD_GRACE;
        let running = self.running(browser)?;
        // A separate connection: it is closed when the caller disconnects, which ends the code.
        let ended = async { running.agent.download(path, request, within).await?.collect(max_response).await };
        let convert = if path == EXECUTE { operation_error } else { new_operation_error };
        let bytes = ended.await.map_err(|error| convert(&running, &error))?;
        serde_json::from_slice(&bytes)
            .map_err(|_| failed(EngineFault::AgentError, "the agent sent an invalid result of a script").into())
    }
}

fn executor(received: wire::Executor) -> Result<Executor, OperationError> {
    let invalid = |_| failed(EngineFault::AgentError, "the agent sent an invalid executor");
    let time = |ms: u64| OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).map_err(|_| ());
    let name = received.name.as_deref().map(ExecutorName::parse).transpose();
    Ok(Executor {
        name: name.map_err(|_| ()).map_err(invalid)?.unwrap_or_default(),
        is_busy: received.busy,
        created_at: time(received.created_at_ms).map_err(invalid)?,
        last_used_at: received.last_used_at_ms.map(time).transpose().map_err(invalid)?,
        target_id: received.target_id,
        url: received.url,
    })
}

fn content(received: repl::Content) -> ReplContent {
    match received {
        repl::Content::Text { channel, text } => {
            let channel = match channel {
                repl::Channel::Write => ReplChannel::Write,
                repl::Channel::Stdout => ReplChannel::Stdout,
                repl::Channel::Stderr => ReplChannel::Stderr,
            };
            ReplContent::Text { channel, text }
        }
        repl::Content::Image { data_b64, mime_type } => ReplContent::Image { data_b64, mime_type },
    }
}
