//! Restarts Chromium in a running sandbox, and loads extensions and profiles before it starts.

use std::time::Duration;

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::extension::{ADD, ExtensionName, RestartRequest};
use casement_agent_protocol::{ErrorBody, ErrorCode, State};
use casement_domain::browser::{EngineError, EngineFault, Launch, Shape, Viewport};
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::OperationError;
use futures_util::TryStreamExt as _;

use crate::engine::Engine;
use crate::fault::{Condition, failed, lost_restart, shorten};
use crate::running::Running;
use crate::start::viewport as to_agent_viewport;

/// The timeout of unpacking an archive that the agent has received.
const UNPACK_TIMEOUT: Duration = Duration::from_secs(60);
/// A framebuffer of an enlarged display may take one part in this number of a browser's memory: Chromium holds several.
const MAX_FRAMEBUFFER_SHARE: u64 = 16;
const BYTES_PER_PIXEL: u64 = 4;

/// Chromium was not restarted.
pub(crate) enum RestartError {
    /// Chromium refused one of the extensions and runs without it.
    Extension(String),
    /// Nothing was changed.
    Refused(ErrorBody),
    /// The restart failed. The agent's events report whether Chromium still runs.
    Failed(EngineError),
}

impl Engine {
    /// Restarts Chromium and stores its new debugging path.
    pub(crate) async fn restart(&self, running: &Running, request: &RestartRequest) -> Result<(), RestartError> {
        let _away = running.begin_restart();
        match running.agent.restart(request).await {
            Ok(status) => running.set_cdp_path(status.browser_ws_path).map_err(RestartError::Failed),
            Err(ClientError::Refused(body)) => match body.code {
                ErrorCode::NotAllowed => {
                    self.refresh_path(running).await?;
                    Err(RestartError::Extension(shorten(body.message)))
                }
                ErrorCode::Missing | ErrorCode::LimitReached | ErrorCode::BadRequest | ErrorCode::OutOfRange => {
                    Err(RestartError::Refused(body))
                }
                _ => Err(RestartError::Failed(lost_restart(&body.message))),
            },
            // The response may be lost although the restart succeeded.
            Err(error) => match self.refresh_path(running).await {
                Ok(()) => Err(RestartError::Failed(lost_restart(&error.to_string()))),
                Err(worse) => Err(worse),
            },
        }
    }

    async fn refresh_path(&self, running: &Running) -> Result<(), RestartError> {
        let status = running.agent.ready().await.map_err(|error| RestartError::Failed(running.failed(&error)))?;
        match status.state {
            State::Ready => running.set_cdp_path(status.browser_ws_path).map_err(RestartError::Failed),
            other => Err(RestartError::Failed(lost_restart(&format!("it is {}", other.name())))),
        }
    }

    /// Restarts the browser with a display larger than the current one can grow to.
    pub(crate) async fn restart_with_viewport_limit(
        &self,
        id: BrowserId,
        viewport: Viewport,
    ) -> Result<(), EngineError> {
        let running = self.running(id)?;
        let picture = u64::from(viewport.width) * u64::from(viewport.height) * BYTES_PER_PIXEL;
        let max = running.memory_bytes / MAX_FRAMEBUFFER_SHARE;
        if picture > max {
            let pixels = max / BYTES_PER_PIXEL;
            return Err(EngineError::OutOfRange(format!("sessions here have the memory for at most {pixels} pixels")));
        }
        let _turn = running.changing.lock().await;
        let request = RestartRequest { viewport: Some(to_agent_viewport(viewport)), ..RestartRequest::default() };
        self.restart(&running, &request).await.map_err(|error| match error {
            RestartError::Refused(body) => EngineError::OutOfRange(shorten(body.message)),
            RestartError::Extension(why) => lost_restart(&why),
            RestartError::Failed(error) => error,
        })
    }

    /// Sends the profile and the extensions of a starting browser to its agent, and then starts Chromium.
    pub(crate) async fn load_profile_and_extensions(
        &self,
        launch: &Launch,
        agent: &AgentClient,
    ) -> Result<(), EngineError> {
        let profile = self.load_profile(launch, agent).await?;
        let extensions = self.bring_extensions(launch, agent).await?;
        match agent.restart(&RestartRequest { extensions, profile, ..RestartRequest::default() }).await {
            Ok(_) => Ok(()),
            Err(ClientError::Refused(body)) if body.code == ErrorCode::NotAllowed => {
                Err(EngineError::Extension(shorten(body.message)))
            }
            // The agent's status, which the caller reads next, has the reason.
            Err(ClientError::Refused(_)) => Ok(()),
            Err(other) => Err(crate::fault::call(launch.id, Condition::Alive, &other)),
        }
    }

    async fn bring_extensions(&self, launch: &Launch, agent: &AgentClient) -> Result<Vec<String>, EngineError> {
        let wanted = &launch.shape.extensions;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let gone = || failed(EngineFault::AgentError, "this engine has no place to get extensions from");
        let stored = self.0.extensions.get().ok_or_else(gone)?;
        let mut names = Vec::new();
        for id in wanted {
            let content = stored.archive(*id).await.map_err(|error| {
                tracing::error!(browser = %launch.id, extension = %id, %error, "cannot read an extension");
                match error {
                    OperationError::Unavailable(why) => EngineError::Unavailable(shorten(why)),
                    _ => failed(EngineFault::AgentError, "an extension cannot be read; the server's log says why"),
                }
            })?;
            let content =
                content.ok_or_else(|| EngineError::Extension(format!("extension {id} is no longer stored")))?;
            let name = id.to_string();
            add(agent, &name, content).await.map_err(|error| match error {
                ClientError::Refused(body) if body.code == ErrorCode::NotAllowed => {
                    EngineError::Extension(shorten(body.message))
                }
                other => crate::fault::call(launch.id, Condition::Alive, &other),
            })?;
            names.push(name);
        }
        Ok(names)
    }
}

/// Returns true if Chromium must not start before its profile or extensions were loaded.
pub(crate) fn is_held(shape: &Shape) -> bool {
    !shape.extensions.is_empty() || shape.profile.is_some()
}

/// Sends the archive of an extension to an agent.
async fn add(
    agent: &AgentClient,
    name: &str,
    content: casement_domain::session_operation::ByteStream,
) -> Result<(), ClientError> {
    let content = content.map_err(|error: OperationError| std::io::Error::other(error.to_string()));
    let name = ExtensionName { name: name.to_owned() };
    agent.upload::<serde_json::Value>(ADD, &name, content, UNPACK_TIMEOUT).await.map(drop)
}
