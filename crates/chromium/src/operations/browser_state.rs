//! The cookies and the local storage of a browser, over its debugging protocol.

use std::time::Duration;

use casement_agent_protocol::browser_state::{
    BrowserState, MAX_ANSWER_BYTES, READ, ReadState, StateReading, StateWritten, WRITE,
};
use casement_agent_protocol::client::ClientError;
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::OperationError;

use super::new_operation_error;
use crate::engine::Engine;
use crate::fault::failed;

/// The timeout of an operation: longer than the agent's own.
const WORK_TIMEOUT: Duration = Duration::from_secs(180);

impl Engine {
    /// Returns the cookies and the local storage of a running browser. `origins` are read in any case, also if their
    /// storage is empty; at most 1,000. No site receives a request, but Chromium may open connections in advance.
    ///
    /// # Errors
    /// [`OperationError::TooLarge`] if the cookies alone exceed the limits of a state; the error of the engine.
    pub async fn read_state(&self, browser: BrowserId, origins: Vec<String>) -> Result<StateReading, OperationError> {
        let running = self.running(browser)?;
        let _turn = running.changing.lock().await;
        let request = ReadState { origins };
        let answer = async {
            let answer = running.agent.download(READ, &request, WORK_TIMEOUT).await?.collect(MAX_ANSWER_BYTES);
            tokio::time::timeout(WORK_TIMEOUT, answer).await.unwrap_or(Err(ClientError::Timeout(WORK_TIMEOUT)))
        };
        let answer = answer.await.map_err(|error| new_operation_error(&running, &error))?;
        let invalid = || failed(EngineFault::AgentError, "the agent sent an invalid browser state");
        let reading: StateReading = serde_json::from_slice(&answer).map_err(|_| invalid())?;
        // The sandbox is as untrusted as the pages in it.
        match reading.state.exceeded_limit() {
            None => Ok(reading),
            Some(_) => Err(invalid().into()),
        }
    }

    /// Replaces all cookies of a running browser, and the local storage of the origins of `state`. No site receives a
    /// request, but Chromium may open connections in advance. Reports how many origins and cookies the browser refused.
    ///
    /// # Errors
    /// [`OperationError::TooLarge`] if the state exceeds its limits; the error of the engine, after which a part may be
    /// written.
    pub async fn write_state(&self, browser: BrowserId, state: &BrowserState) -> Result<StateWritten, OperationError> {
        let running = self.running(browser)?;
        let _turn = running.changing.lock().await;
        let written = running.agent.call(WRITE, state, WORK_TIMEOUT).await;
        written.map_err(|error| new_operation_error(&running, &error))
    }
}
