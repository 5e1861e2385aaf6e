//! A BiDi connection to a remote browser before the client has a session: its socket at the WebDriver server belongs to
//! the session that runs already, so the commands that concern sessions are answered here.

use std::sync::Arc;

use casement_domain::engine::EngineName;
use serde_json::{Value, json};
use url::Url;

use super::{
    WebDriverSessionId,
    bidi::error_response,
    capabilities::Bidi,
    remote_capabilities::{self, Requested, Unmatched},
};
use crate::relay::RemoteSessionInfo;

/// The session of a remote browser that a BiDi connection is for.
#[derive(Clone, Debug)]
pub struct RemoteBidi {
    /// The session on the WebDriver server.
    pub session: Arc<RemoteSessionInfo>,
    /// The engine of the browser, for errors.
    pub engine: EngineName,
}

impl RemoteBidi {
    /// Answers a command of a client that has no session yet. Returns whether it has one now.
    pub(super) fn answer(&self, command: &Value, webdriver_url: &Url) -> (Value, bool) {
        let id = command.get("id");
        let refused = |error: &str, message: &str| (error_response(id, error, message), false);
        match command.get("method").and_then(Value::as_str) {
            Some("session.status") => {
                let result = json!({ "ready": true, "message": "the browser runs" });
                (json!({ "type": "success", "id": id, "result": result }), false)
            }
            Some("session.new") => match self.new_session(&command["params"], webdriver_url) {
                Ok(result) => (json!({ "type": "success", "id": id, "result": result }), true),
                Err((error, message)) => refused(error, &message),
            },
            _ => refused("invalid session id", "the connection has no session yet: session.new comes first"),
        }
    }

    fn new_session(&self, parameters: &Value, webdriver_url: &Url) -> Result<Value, (&'static str, String)> {
        let compared = remote_capabilities::compare(parameters, Bidi::Forced, &self.session);
        let Requested { timeouts, .. } = compared.map_err(|unmatched| match unmatched {
            Unmatched::Malformed(bad) => ("invalid argument", bad.to_string()),
            different @ Unmatched::Different { .. } => self.not_created(&different.to_string()),
        })?;
        if timeouts.is_some_and(|timeouts| self.session.capabilities.get("timeouts") != Some(&timeouts)) {
            return Err(self.not_created("timeouts: they cannot be changed over BiDi"));
        }
        let id = WebDriverSessionId::parse(&self.session.id)
            .map_err(|_| self.not_created("the server's own id of the session is none"))?;
        let capabilities = remote_capabilities::public(&self.session, &id, Some(webdriver_url), None);
        Ok(json!({ "sessionId": id.as_str(), "capabilities": capabilities }))
    }

    fn not_created(&self, why: &str) -> (&'static str, String) {
        let engine = &self.engine;
        let message = format!("the engine {engine} does not support new capabilities of a running browser: {why}");
        ("session not created", message)
    }
}
