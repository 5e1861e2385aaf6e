//! Scripts, run by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::script::{self as words, EXECUTE, MAX_OUTPUT, MAX_RESULT};
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::script::{NewScript, ScriptEnd, ScriptMachine};
use casement_domain::session_operation::OperationError;
use futures_util::TryStreamExt as _;

use super::operation_error;
use crate::engine::Engine;
use crate::fault::failed;

/// What a call takes beside its script: the start of what runs it, on a machine under load.
const AROUND: Duration = Duration::from_secs(45);
/// Longest answer. A byte of output may take six as JSON.
const MAX_ANSWER: usize = MAX_RESULT + 12 * MAX_OUTPUT + (1 << 20);

#[async_trait]
impl ScriptMachine for Engine {
    async fn execute(&self, browser: BrowserId, script: NewScript) -> Result<ScriptEnd, OperationError> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let asked = words::ExecuteScript {
            code: script.code,
            timeout_ms: ms(script.timeout),
            within_ms: script.within.map(ms),
        };
        // Once in the line, and once running.
        let within = script.timeout * 2 + AROUND;
        let running = self.running(browser)?;
        // Over a connection of its own: a caller that goes away closes it, and that ends the script.
        let ended = async {
            let answer = running.agent.download(EXECUTE, &asked, within).await?;
            let bytes = answer.try_fold(Vec::new(), |mut all, part| async move {
                if all.len() + part.len() > MAX_ANSWER {
                    return Err(casement_agent_protocol::client::ClientError::TooLong);
                }
                all.extend_from_slice(&part);
                Ok(all)
            });
            bytes.await
        };
        let bytes = ended.await.map_err(|error| operation_error(&running, &error))?;
        let told: words::ScriptEnd = serde_json::from_slice(&bytes)
            .map_err(|_| failed(EngineFault::AgentError, "the agent told of a script what cannot be"))?;
        Ok(ScriptEnd {
            success: told.success,
            result: told.result.map(|result| String::from(Box::<str>::from(result))),
            error: told.error,
            stdout: told.stdout,
            stderr: told.stderr,
        })
    }
}
