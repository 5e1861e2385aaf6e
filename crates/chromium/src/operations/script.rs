//! Scripts run by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::script::{self as wire, EXECUTE, MAX_OUTPUT, MAX_RESULT};
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::script::{NewScript, ScriptEnd, ScriptMachine};
use casement_domain::session_operation::OperationError;

use super::operation_error;
use super::process::milliseconds;
use crate::engine::Engine;
use crate::fault::failed;

/// Added to the timeouts of a script: the time to start the script runner on a machine under load.
const LOAD_GRACE: Duration = Duration::from_secs(45);
/// The longest response in bytes. A byte of the two outputs may take six as JSON.
const MAX_RESPONSE: usize = MAX_RESULT + 12 * MAX_OUTPUT + (1 << 20);

#[async_trait]
impl ScriptMachine for Engine {
    async fn execute(&self, browser: BrowserId, script: NewScript) -> Result<ScriptEnd, OperationError> {
        let request = wire::ExecuteScript {
            code: script.code,
            timeout_ms: milliseconds(script.timeout),
            within_ms: script.within.map(milliseconds),
        };
        // The timeout applies twice: to the wait in the queue, and to the run.
        let within = script.timeout * 2 + LOAD_GRACE;
        let running = self.running(browser)?;
        // A separate connection: it is closed when the caller disconnects, which ends the script.
        let ended = async { running.agent.download(EXECUTE, &request, within).await?.collect(MAX_RESPONSE).await };
        let bytes = ended.await.map_err(|error| operation_error(&running, &error))?;
        let received: wire::ScriptEnd = serde_json::from_slice(&bytes)
            .map_err(|_| failed(EngineFault::AgentError, "the agent sent an invalid result of a script"))?;
        Ok(ScriptEnd {
            success: received.success,
            result: received.result.map(|result| String::from(Box::<str>::from(result))),
            error: received.error,
            stdout: received.stdout,
            stderr: received.stderr,
        })
    }
}
