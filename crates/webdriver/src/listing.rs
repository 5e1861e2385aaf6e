//! The sessions that a WebDriver server lists.

use std::time::Duration;

use http::Method;
use serde_json::{Map, Value, json};

use crate::capabilities::{BROWSER, BROWSER_ARGUMENT, OWNER, OWNER_ARGUMENT};
use crate::client::{Ask, Client};
use crate::error::GridError;
use crate::record::is_session_id;

/// The maximum size of a list of sessions, in bytes: about 10,000 of a Selenium Grid.
pub(crate) const MAX_LIST: usize = 32 * 1024 * 1024;
/// How long the browser of one session may take to answer, if the server does not return marks.
const MARKS_TIMEOUT: Duration = Duration::from_secs(5);

/// A session that a server lists.
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) capabilities: Map<String, Value>,
    /// The mark of the installation, if it has one.
    pub(crate) owner: Option<String>,
    /// The mark of the browser, if it has one.
    pub(crate) browser: Option<String>,
}

impl Listed {
    fn parse(session: &Value, id: &str) -> Option<Self> {
        let id = session.get(id)?.as_str().filter(|id| is_session_id(id))?.to_owned();
        let capabilities = session.get("capabilities")?.as_object()?.clone();
        let text = |name: &str| capabilities.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self { owner: text(OWNER), browser: text(BROWSER), id, capabilities })
    }
}

/// Lists the sessions of the server.
///
/// # Errors
/// [`GridError::Unsupported`] if it lists none, or any other error.
pub(crate) async fn sessions(client: &Client) -> Result<Vec<Listed>, GridError> {
    let within = client.command_timeout();
    let list = |path| Ask { method: Method::GET, path, body: None, within, max: MAX_LIST };
    let status = client.call(list("/status")).await?;
    if let Some(nodes) = status.get("nodes").and_then(Value::as_array) {
        let slots = nodes.iter().filter_map(|node| node.get("slots")?.as_array()).flatten();
        let sessions = slots.filter_map(|slot| slot.get("session"));
        return Ok(sessions.filter_map(|session| Listed::parse(session, "sessionId")).collect());
    }
    let sessions = match client.call(list("/sessions")).await {
        Ok(Value::Array(sessions)) => sessions,
        Err(error @ (GridError::Unreachable { .. } | GridError::Away { .. } | GridError::Timeout { .. })) => {
            return Err(error);
        }
        _ => return Err(GridError::Unsupported { what: "a list of its sessions" }),
    };
    let mut listed: Vec<_> = sessions.iter().filter_map(|session| Listed::parse(session, "id")).collect();
    for session in &mut listed {
        add_marks(client, session).await;
    }
    Ok(listed)
}

/// Reads the marks of a session from the arguments of its browser. A session whose browser does not say them has none.
async fn add_marks(client: &Client, session: &mut Listed) {
    let path = format!("/session/{}/goog/cdp/execute", session.id);
    let body = json!({ "cmd": "Browser.getBrowserCommandLine", "params": {} });
    let ask = Ask { method: Method::POST, path: &path, body: Some(&body), within: MARKS_TIMEOUT, max: MAX_LIST };
    let Ok(answer) = client.call(ask).await else { return };
    let arguments = answer.get("arguments").and_then(Value::as_array);
    for argument in arguments.into_iter().flatten().filter_map(Value::as_str) {
        if let Some(owner) = argument.strip_prefix(OWNER_ARGUMENT) {
            session.owner = Some(owner.to_owned());
        } else if let Some(browser) = argument.strip_prefix(BROWSER_ARGUMENT) {
            session.browser = Some(browser.to_owned());
        }
    }
}
