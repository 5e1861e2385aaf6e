//! The use cases of HTTP requests through a session's browser.

use std::sync::Arc;

use super::{CurlAnswer, CurlMachine, CurlRequest};
use crate::engine::Capability;
use crate::session::Session;
use crate::session_operation::{OperationError, SessionOperations, UpstreamFault};

/// The lowest final status. A lower status announces another response.
const FIRST_FINAL_STATUS: u16 = 200;

/// The use cases of HTTP requests through a session's browser.
#[derive(Clone)]
pub struct Curl {
    machine: Arc<dyn CurlMachine>,
    operations: SessionOperations,
}

impl Curl {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn CurlMachine>, operations: SessionOperations) -> Self {
        Self { machine, operations }
    }

    /// Sends a request. The session is in use until its response is read.
    ///
    /// # Errors
    /// See [`CurlMachine::send`]; [`OperationError::Upstream`] for a response with a status below 200.
    pub async fn send(&self, session: &Session, request: CurlRequest) -> Result<CurlAnswer, OperationError> {
        let entered = self.operations.begin(session, Capability::Curl)?;
        let CurlAnswer { status, headers, body } = self.machine.send(entered.browser, request).await?;
        // The response to the caller cannot have such a status: the caller would expect another response after it.
        if status < FIRST_FINAL_STATUS {
            let message = format!("the target answered with status {status}, which is no final answer");
            return Err(OperationError::Upstream { fault: UpstreamFault::HttpStatus, message });
        }
        Ok(CurlAnswer { status, headers, body: entered.during(body) })
    }
}
