//! Adopts the browsers of a previous server process.

use std::sync::Arc;
use std::time::Duration;

use casement_agent_protocol::State;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_domain::ids::BrowserId;
use casement_sandbox::Sandbox;
use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::fault::EngineSetupError;
use crate::running::{AGENT_SOCKET, BrowserSlot, Running};
use crate::start::SandboxRecord;

/// The maximum number of agents that are queried at a time.
const MAX_QUERIES: usize = 16;
/// The timeout of one query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of all queries of a live sandbox's agent. It is long because the machine may be busy when a server
/// restarts with everything on it, and a browser that is not adopted loses its session.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a failed query.
const QUERY_BACKOFF: Duration = Duration::from_millis(200);

/// The reason why a browser is not adopted.
enum AdoptError {
    /// A later query may succeed.
    Temporary(String),
    /// No later query can succeed.
    Permanent(String),
}

impl Engine {
    /// Adopts every browser of a previous server process whose agent answers within half a minute: serves its egress
    /// again and watches it. Returns all browsers that run now. [`Engine::sweep`] ends the others.
    ///
    /// # Errors
    /// [`EngineSetupError::ListSandboxes`] if the running sandboxes cannot be listed. An empty list instead would end
    /// every session.
    pub async fn find_running(&self) -> Result<Vec<BrowserId>, EngineSetupError> {
        let found = self.0.host.list().await.map_err(EngineSetupError::ListSandboxes)?;
        let query_slots = Semaphore::new(MAX_QUERIES);
        stream::iter(found).for_each_concurrent(None, |sandbox| self.adopt_sandbox(sandbox, &query_slots)).await;
        let slots = self.0.slots();
        Ok(slots.iter().filter(|(_, slot)| matches!(slot, BrowserSlot::Running(_))).map(|(id, _)| *id).collect())
    }

    async fn adopt_sandbox(&self, sandbox: Sandbox, query_slots: &Semaphore) {
        let Ok(id) = sandbox.id.parse::<BrowserId>() else { return };
        if !sandbox.is_alive() || self.0.slots().contains_key(&id) {
            return;
        }
        let record = SandboxRecord::read(&sandbox.dir);
        let memory_bytes = record.as_ref().and_then(|record| record.memory_bytes);
        let memory_bytes = memory_bytes.unwrap_or(self.0.config.memory_bytes);
        let remote = record.and_then(|record| record.remote);
        // Before the query: the agent of a remote browser is ready only while it reaches its browser.
        if let Some(remote) = &remote
            && let Err(error) = self.open_socket(id, &sandbox, Some(remote))
        {
            tracing::error!(browser = %id, %error, "cannot serve the socket of an adopted remote browser");
            return;
        }
        let is_remote = remote.is_some();
        let answer = query_until_answered(&sandbox, query_slots).await;
        let running = answer.and_then(|(agent, path)| {
            Running::new(id, sandbox, agent, path, memory_bytes, remote).map_err(|error| error.to_string())
        });
        match running {
            Ok(running) => self.add(running),
            Err(why) => {
                if is_remote {
                    self.close_sockets(id);
                }
                tracing::warn!(browser = %id, why, "cannot adopt a browser of a previous server process");
            }
        }
    }

    fn add(&self, running: Running) {
        let (id, running) = (running.id, Arc::new(running));
        let mut slots = self.0.slots();
        if slots.contains_key(&id) {
            return;
        }
        if running.remote.is_none()
            && let Err(error) = self.open_socket(id, &running.sandbox, None)
        {
            tracing::error!(browser = %id, %error, "cannot serve the egress of an adopted browser");
            return;
        }
        slots.insert(id, BrowserSlot::Running(Arc::clone(&running)));
        self.watch(&running);
    }
}

/// Repeats the query until the agent answers, the sandbox has ended or [`ADOPT_TIMEOUT`] since the first query is over.
async fn query_until_answered(sandbox: &Sandbox, query_slots: &Semaphore) -> Result<(AgentClient, String), String> {
    let mut since = None;
    loop {
        let answer = {
            let _turn = query_slots.acquire().await;
            since.get_or_insert_with(Instant::now);
            let silent = |_| Err(AdoptError::Temporary("its agent does not answer".to_owned()));
            tokio::time::timeout(QUERY_TIMEOUT, ask(sandbox)).await.unwrap_or_else(silent)
        };
        match answer {
            Ok(answer) => return Ok(answer),
            Err(AdoptError::Permanent(why)) => return Err(why),
            Err(AdoptError::Temporary(why)) if !sandbox.is_alive() => return Err(format!("{why}, and it has ended")),
            Err(AdoptError::Temporary(why)) if since.is_some_and(|since| since.elapsed() >= ADOPT_TIMEOUT) => {
                return Err(why);
            }
            Err(AdoptError::Temporary(_)) => tokio::time::sleep(QUERY_BACKOFF).await,
        }
    }
}

async fn ask(sandbox: &Sandbox) -> Result<(AgentClient, String), AdoptError> {
    let note = SandboxRecord::read(&sandbox.dir)
        .ok_or_else(|| AdoptError::Permanent("its start was not completed".to_owned()))?;
    let not_now = |error: ClientError| AdoptError::Temporary(error.to_string());
    let agent = AgentClient::connect(sandbox.listener_path(AGENT_SOCKET)).await.map_err(not_now)?;
    let status = agent.status().await.map_err(not_now)?;
    if status.nonce != note.nonce {
        return Err(AdoptError::Permanent("its agent is not the one that was started".to_owned()));
    }
    match status.state {
        // The profile of a closed browser may still be requested.
        State::Ready | State::Closed => Ok((agent, status.browser_ws_path)),
        State::Starting if note.held && status.chromium_argv.is_empty() => {
            Err(AdoptError::Permanent("its start was not completed".to_owned()))
        }
        State::Starting => Err(AdoptError::Temporary("it is still being started".to_owned())),
        other => Err(AdoptError::Permanent(format!("it is {}", other.name()))),
    }
}
