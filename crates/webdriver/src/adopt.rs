//! Taking up the browsers of an earlier life of the server.

use std::sync::Arc;
use std::time::Duration;

use casement_agent::client::AgentClient;
use casement_agent::protocol::State;
use casement_domain::ids::BrowserId;
use casement_sandbox::Sandbox;
use futures_util::{StreamExt, stream};

use crate::engine::Engine;
use crate::running::{AGENT_SOCKET, Place, Running};
use crate::start::Note;

/// How many agents are asked at a time, and how long each may take.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(5);

impl Engine {
    /// Takes up every browser of an earlier life whose agent answers: its way out is served again and it is watched. Returns
    /// all browsers that run now. The others are for [`Engine::sweep`].
    pub async fn find_running(&self) -> Vec<BrowserId> {
        let found = self.0.host.list().await.unwrap_or_else(|error| {
            tracing::error!(%error, "the sandboxes of an earlier life cannot be looked through");
            Vec::new()
        });
        stream::iter(found).for_each_concurrent(AT_ONCE, |sandbox| self.take_up(sandbox)).await;
        let places = self.0.places();
        places.iter().filter(|(_, place)| matches!(place, Place::Running(_))).map(|(id, _)| *id).collect()
    }

    async fn take_up(&self, sandbox: Sandbox) {
        let Ok(id) = sandbox.id.parse::<BrowserId>() else { return };
        if !sandbox.is_alive() || self.0.places().contains_key(&id) {
            return;
        }
        let asked = tokio::time::timeout(PATIENCE, ask(id, sandbox)).await;
        match asked.map_err(|_| "its agent does not answer".to_owned()).and_then(|answer| answer) {
            Ok(running) => self.add(running),
            Err(why) => tracing::warn!(browser = %id, why, "a browser of an earlier life is not taken up"),
        }
    }

    fn add(&self, running: Running) {
        let (id, running) = (running.id, Arc::new(running));
        let mut places = self.0.places();
        if places.contains_key(&id) {
            return;
        }
        if let Err(error) = self.open_egress(id, &running.sandbox) {
            tracing::error!(browser = %id, %error, "a browser of an earlier life has no way out");
            return;
        }
        places.insert(id, Place::Running(Arc::clone(&running)));
        self.watch(&running);
    }
}

async fn ask(id: BrowserId, sandbox: Sandbox) -> Result<Running, String> {
    let note = Note::read(&sandbox.dir).ok_or("its start was not completed")?;
    let agent = AgentClient::connect(sandbox.listener_path(AGENT_SOCKET)).await.map_err(|e| e.to_string())?;
    let status = agent.status().await.map_err(|e| e.to_string())?;
    if status.nonce != note.nonce {
        return Err("its agent is not the one that was started".to_owned());
    }
    match status.state {
        State::Ready => Running::new(id, sandbox, agent, status.browser_ws_path).map_err(|e| e.to_string()),
        other => Err(format!("it is {other:?}")),
    }
}
