//! Adds extensions to a running browser.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::extension::{ADD, ExtensionName, RestartRequest};
use casement_domain::extension::ExtensionMachine;
use casement_domain::field::{FieldCode, InvalidInput, InvalidValue};
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::{ByteStream, OperationError};

use super::{Content, operation_error};
use crate::engine::Engine;
use crate::restart::RestartError;

/// The timeout of unpacking an archive that the agent has received.
const UNPACK_TIMEOUT: Duration = Duration::from_secs(60);

#[async_trait]
impl ExtensionMachine for Engine {
    async fn add(&self, browser: BrowserId, name: &str, content: ByteStream) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        // A restart loads the pending extensions, which must not be replaced meanwhile.
        let _guard = running.changing.lock().await;
        let (noted, content) = Content::of(content);
        let name = ExtensionName { name: name.to_owned() };
        let added = running.agent.upload::<serde_json::Value>(ADD, &name, content, UNPACK_TIMEOUT).await;
        added.map(drop).map_err(|error| noted.failed(&running, &error))
    }

    async fn load(&self, browser: BrowserId, names: Vec<String>) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let _guard = running.changing.lock().await;
        let request = RestartRequest { extensions: names, ..RestartRequest::default() };
        self.restart(&running, &request).await.map_err(|error| match error {
            RestartError::Extension(why) => {
                InvalidInput::of("extensions", InvalidValue::new(FieldCode::NotAllowed, why)).into()
            }
            RestartError::Refused(body) => {
                operation_error(&running, &casement_agent_protocol::client::ClientError::Refused(body))
            }
            RestartError::Failed(error) => error.into(),
        })
    }
}
