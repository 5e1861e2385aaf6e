//! The state of a WebDriver server.

use std::collections::BTreeSet;

use http::Method;
use serde_json::Value;

use crate::capabilities::DOWNLOADS;
use crate::client::Ask;
use crate::engine::WebDriverEngine;
use crate::error::GridError;
use crate::listing::MAX_LIST;

const MAX_VERSIONS: usize = 32;

/// The state of a WebDriver server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// True if the server gives sessions.
    pub ready: bool,
    /// The server's own message.
    pub message: String,
    /// The versions of the server or of its nodes, at most 32.
    pub versions: Vec<String>,
    /// The nodes of a Selenium Grid; `None`: the server has no nodes.
    pub nodes: Option<NodeStatus>,
}

/// The nodes of a Selenium Grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of nodes that are up.
    pub up: usize,
    /// The number of sessions that the nodes can have at the same time.
    pub slots: usize,
    /// The number of sessions of Chrome that the nodes which are up can have at the same time.
    pub chrome: usize,
    /// How many of these can be started now.
    pub free: usize,
    /// True if there is Chrome, and all nodes with Chrome which are up hand out what it downloads.
    pub all_have_downloads: bool,
}

impl ServerStatus {
    /// Returns why the server has no room for a session; `None` if it has room or does not say.
    #[must_use]
    pub fn lack_of_room(&self) -> Option<String> {
        let nodes = self.nodes?;
        match nodes {
            NodeStatus { nodes: 0, .. } => Some("it has no nodes".to_owned()),
            NodeStatus { up: 0, nodes, .. } => Some(format!("none of its {nodes} nodes is up")),
            NodeStatus { chrome: 0, nodes, .. } => Some(format!("none of its {nodes} nodes has Chrome")),
            NodeStatus { free: 0, chrome, .. } => Some(format!("all {chrome} slots for Chrome are in use")),
            _ => None,
        }
    }
}

impl WebDriverEngine {
    /// Asks the server for its state.
    ///
    /// # Errors
    /// Any [`GridError`].
    pub async fn status(&self) -> Result<ServerStatus, GridError> {
        let within = self.client.command_timeout();
        let ask = Ask { method: Method::GET, path: "/status", body: None, within, max: MAX_LIST };
        let answer = self.client.call(ask).await?;
        let safe = |text: Option<&Value>| self.client.safe(text.and_then(Value::as_str).unwrap_or_default());
        let ready = answer.get("ready").and_then(Value::as_bool);
        let ready = ready.ok_or_else(|| GridError::nonsense("a status does not say whether it is ready"))?;
        let nodes = answer.get("nodes").and_then(Value::as_array);
        let of_nodes = nodes.into_iter().flatten().map(|node| node.get("version"));
        let own = answer.get("build").map(|build| build.get("version"));
        let versions: BTreeSet<_> = of_nodes.chain(own).map(safe).filter(|version| !version.is_empty()).collect();
        Ok(ServerStatus {
            ready,
            message: safe(answer.get("message")),
            versions: versions.into_iter().take(MAX_VERSIONS).collect(),
            nodes: nodes.map(|nodes| count(nodes)),
        })
    }
}

fn count(nodes: &[Value]) -> NodeStatus {
    let mut count = NodeStatus { nodes: nodes.len(), ..NodeStatus::default() };
    let mut without_downloads = 0;
    for node in nodes {
        let slots = node.get("slots").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let max = node.get("maxSessions").and_then(Value::as_u64).and_then(|max| usize::try_from(max).ok());
        let max = max.unwrap_or(slots.len());
        count.slots += max.min(slots.len());
        if node.get("availability").and_then(Value::as_str) != Some("UP") {
            continue;
        }
        count.up += 1;
        let is_used = |slot: &Value| slot.get("session").is_some_and(|session| !session.is_null());
        let of_chrome = |slot: &&Value| {
            slot.get("stereotype").and_then(|of| of.get("browserName")).and_then(Value::as_str) == Some("chrome")
        };
        let used = slots.iter().filter(|slot| is_used(slot)).count();
        let chrome = slots.iter().filter(of_chrome).count();
        let has_downloads = |slot: &&Value| slot["stereotype"][DOWNLOADS] == true;
        without_downloads += chrome - slots.iter().filter(of_chrome).filter(has_downloads).count();
        let free = slots.iter().filter(of_chrome).filter(|slot| !is_used(slot)).count();
        // A node has a slot for each browser and session, of which it uses fewer at the same time.
        count.chrome += chrome.min(max);
        count.free += free.min(max.saturating_sub(used));
    }
    count.all_have_downloads = count.chrome > 0 && without_downloads == 0;
    count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slot(browser: &str, session: &Value) -> Value {
        json!({ "stereotype": { "browserName": browser }, "session": session })
    }

    #[test]
    fn slots_are_counted_up_to_the_maximum_of_their_node() {
        let (free, used) = (json!(null), json!({ "sessionId": "a" }));
        let slots = [slot("chrome", &free), slot("chrome", &used), slot("firefox", &free), slot("firefox", &free)];
        let up = json!({ "availability": "UP", "maxSessions": 2, "slots": slots });
        let full =
            json!({ "availability": "UP", "maxSessions": 1, "slots": [slot("chrome", &free), slot("firefox", &used)] });
        let down = json!({ "availability": "DOWN", "maxSessions": 1, "slots": [slot("chrome", &free)] });
        let counted = count(&[up, full, down]);
        let expected = NodeStatus { nodes: 3, up: 2, slots: 4, chrome: 3, free: 1, all_have_downloads: false };
        assert_eq!(counted, expected);
    }

    #[test]
    fn downloads_are_handed_out_only_if_all_nodes_do() {
        let node = |downloads: bool| {
            let stereotype = json!({ "browserName": "chrome", DOWNLOADS: downloads });
            json!({ "availability": "UP", "slots": [{ "stereotype": stereotype, "session": null }] })
        };
        assert!(count(&[node(true), node(true)]).all_have_downloads);
        assert!(!count(&[node(true), node(false)]).all_have_downloads);
        assert!(!count(&[]).all_have_downloads);
    }

    #[test]
    fn a_lack_of_room_has_its_reason() {
        let lack = |nodes| ServerStatus { nodes: Some(nodes), ..ServerStatus::default() }.lack_of_room();
        let nodes = NodeStatus { nodes: 2, up: 2, slots: 4, chrome: 4, free: 1, all_have_downloads: false };
        assert_eq!(lack(nodes), None);
        assert_eq!(lack(NodeStatus { free: 0, ..nodes }).as_deref(), Some("all 4 slots for Chrome are in use"));
        assert_eq!(lack(NodeStatus { chrome: 0, ..nodes }).as_deref(), Some("none of its 2 nodes has Chrome"));
        assert_eq!(lack(NodeStatus { up: 0, ..nodes }).as_deref(), Some("none of its 2 nodes is up"));
        assert_eq!(lack(NodeStatus::default()).as_deref(), Some("it has no nodes"));
        assert_eq!(ServerStatus::default().lack_of_room(), None);
    }
}
