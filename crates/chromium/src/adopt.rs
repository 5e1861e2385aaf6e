//! Taking up the browsers of an earlier life of the server.

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

/// How many agents are asked at a time.
const AT_ONCE: usize = 16;
/// How long an agent may take over one answer.
const ONE_ANSWER: Duration = Duration::from_secs(5);
/// How long an agent whose sandbox lives is asked again and again. A machine may be busy just when a server comes back, with all
/// that comes back with it; to give up on a browser ends somebody's session.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between an answer that was no use and the next question.
const PAUSE: Duration = Duration::from_millis(200);

/// Why a browser is not taken up.
enum AdoptError {
    /// It may be otherwise if it is asked again.
    NotNow(String),
    /// It will never be otherwise.
    Never(String),
}

impl Engine {
    /// Takes up every browser of an earlier life whose agent answers within half a minute: its way out is served again and it is
    /// watched. Returns all browsers that run now. The others are for [`Engine::sweep`].
    ///
    /// # Errors
    /// [`EngineSetupError::EarlierLife`] if nobody can tell what runs. That is not the same as nothing: whoever took it for that would
    /// end every session.
    pub async fn find_running(&self) -> Result<Vec<BrowserId>, EngineSetupError> {
        let found = self.0.host.list().await.map_err(EngineSetupError::EarlierLife)?;
        let turns = Semaphore::new(AT_ONCE);
        stream::iter(found).for_each_concurrent(None, |sandbox| self.take_up(sandbox, &turns)).await;
        let slots = self.0.slots();
        Ok(slots.iter().filter(|(_, place)| matches!(place, BrowserSlot::Running(_))).map(|(id, _)| *id).collect())
    }

    async fn take_up(&self, sandbox: Sandbox, turns: &Semaphore) {
        let Ok(id) = sandbox.id.parse::<BrowserId>() else { return };
        if !sandbox.is_alive() || self.0.slots().contains_key(&id) {
            return;
        }
        let answer = ask_until_told(&sandbox, turns).await;
        let running =
            answer.and_then(|(agent, path)| Running::new(id, sandbox, agent, path).map_err(|e| e.to_string()));
        match running {
            Ok(running) => self.add(running),
            Err(why) => tracing::warn!(browser = %id, why, "a browser of an earlier life is not taken up"),
        }
    }

    fn add(&self, running: Running) {
        let (id, running) = (running.id, Arc::new(running));
        let mut slots = self.0.slots();
        if slots.contains_key(&id) {
            return;
        }
        if let Err(error) = self.open_egress(id, &running.sandbox) {
            tracing::error!(browser = %id, %error, "a browser of an earlier life has no way out");
            return;
        }
        slots.insert(id, BrowserSlot::Running(Arc::clone(&running)));
        self.watch(&running);
    }
}

/// Asks until there is an answer, the sandbox is gone or the patience is at its end, which begins with the first question.
async fn ask_until_told(sandbox: &Sandbox, turns: &Semaphore) -> Result<(AgentClient, String), String> {
    let mut since = None;
    loop {
        let answer = {
            let _turn = turns.acquire().await;
            since.get_or_insert_with(Instant::now);
            let silent = |_| Err(AdoptError::NotNow("its agent does not answer".to_owned()));
            tokio::time::timeout(ONE_ANSWER, ask(sandbox)).await.unwrap_or_else(silent)
        };
        match answer {
            Ok(answer) => return Ok(answer),
            Err(AdoptError::Never(why)) => return Err(why),
            Err(AdoptError::NotNow(why)) if !sandbox.is_alive() => return Err(format!("{why}, and it has ended")),
            Err(AdoptError::NotNow(why)) if since.is_some_and(|since| since.elapsed() >= PATIENCE) => return Err(why),
            Err(AdoptError::NotNow(_)) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn ask(sandbox: &Sandbox) -> Result<(AgentClient, String), AdoptError> {
    let note =
        SandboxRecord::read(&sandbox.dir).ok_or_else(|| AdoptError::Never("its start was not completed".to_owned()))?;
    let not_now = |error: ClientError| AdoptError::NotNow(error.to_string());
    let agent = AgentClient::connect(sandbox.listener_path(AGENT_SOCKET)).await.map_err(not_now)?;
    let status = agent.status().await.map_err(not_now)?;
    if status.nonce != note.nonce {
        return Err(AdoptError::Never("its agent is not the one that was started".to_owned()));
    }
    match status.state {
        // One that is closed has a profile that somebody may want.
        State::Ready | State::Closed => Ok((agent, status.browser_ws_path)),
        State::Starting if note.held && status.chromium_argv.is_empty() => {
            Err(AdoptError::Never("its start was not completed".to_owned()))
        }
        State::Starting => Err(AdoptError::NotNow("it is still being started".to_owned())),
        other => Err(AdoptError::Never(format!("it is {other:?}"))),
    }
}
