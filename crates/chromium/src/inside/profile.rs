//! Profiles of browsers: taken out when their time is over, and brought in, into those that run and those that are being started.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::profile::{CAPTURE, LOAD};
use casement_domain::browser::{EngineError, EngineFault, Launch};
use casement_domain::ids::BrowserId;
use casement_domain::profile::{MAX_PROFILE_BYTES, ProfileMachine};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout};

use super::{Content, operation_error, stream as stream_of};
use crate::engine::Engine;
use crate::fault::{Condition, failed, shorten};
use crate::restart::RestartError;

/// How long a browser may take to close, with all that it still has to write.
const CLOSING: Duration = Duration::from_secs(60);
/// How long an agent may be silent in the middle of an archive, and how long it may take over the whole, there or back.
const SILENT: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(600);
/// How long an agent may take to unpack an archive that it has.
const UNPACKING: Duration = Duration::from_secs(60);

#[async_trait]
impl ProfileMachine for Engine {
    async fn capture(&self, browser: BrowserId) -> Result<ByteStream, OperationError> {
        let running = self.running(browser)?;
        let _turn = running.changing.lock().await;
        let archive = running.agent.download(CAPTURE, &(), CLOSING).await;
        let archive = archive.map_err(|error| operation_error(&running, &error))?;
        Ok(bounded(stream_of(running.clone(), archive)))
    }

    async fn load(&self, browser: BrowserId, archive: ByteStream) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let _turn = running.changing.lock().await;
        load_extensions(&running.agent, archive).await.map_err(|fault| match fault {
            LoadProfileError::Unusable(why) => OperationError::Engine(EngineError::Profile(why)),
            LoadProfileError::Failed(error) => operation_error(&running, &error),
        })?;
        let wish = RestartRequest { profile: true, ..RestartRequest::default() };
        self.restart(&running, &wish).await.map_err(|error| match error {
            RestartError::Extension(why) => OperationError::Failed(why),
            RestartError::Refused(body) => operation_error(&running, &ClientError::Refused(body)),
            RestartError::Failed(error) => error.into(),
        })
    }
}

impl Engine {
    /// Brings the profile of a browser that is being started to its agent. Answers whether there is something to start with.
    pub(crate) async fn load_profile(&self, launch: &Launch, agent: &AgentClient) -> Result<bool, EngineError> {
        let Some(profile) = &launch.shape.profile else { return Ok(false) };
        let gone = || failed(EngineFault::AgentError, "this engine has no place to get profiles from");
        let kept = self.0.profiles.get().ok_or_else(gone)?;
        let archive = kept.archive(profile).await.map_err(|error| {
            tracing::error!(browser = %launch.id, profile = %profile.id, %error, "a profile cannot be read");
            EngineError::Profile(shorten(error.to_string()))
        })?;
        let Some(archive) = archive else { return Ok(false) };
        let brought = load_extensions(agent, archive).await.map(|()| true);
        brought.map_err(|fault| match fault {
            LoadProfileError::Unusable(why) => {
                tracing::error!(browser = %launch.id, profile = %profile.id, why, "a profile cannot be used");
                EngineError::Profile(why)
            }
            LoadProfileError::Failed(error) => crate::fault::call(launch.id, Condition::Alive, &error),
        })
    }
}

/// A profile did not come to an agent.
enum LoadProfileError {
    /// It is cut, altered, too large, or no profile.
    Unusable(String),
    Failed(ClientError),
}

async fn load_extensions(agent: &AgentClient, archive: ByteStream) -> Result<(), LoadProfileError> {
    let (noted, content) = Content::of(archive);
    let brought = timeout(WHOLE, agent.upload::<serde_json::Value>(LOAD, &(), content, UNPACKING)).await;
    let Err(error) = brought.unwrap_or(Err(ClientError::Timeout(WHOLE))) else { return Ok(()) };
    if let Some(fault) = noted.fault() {
        return Err(LoadProfileError::Unusable(shorten(fault.to_string())));
    }
    Err(match error {
        ClientError::Refused(body)
            if matches!(body.code, ErrorCode::NotAllowed | ErrorCode::TooLarge | ErrorCode::DiskFull) =>
        {
            LoadProfileError::Unusable(shorten(body.message))
        }
        other => LoadProfileError::Failed(other),
    })
}

/// The archive, as long as it may be and as slow: a sandbox could send without end.
fn bounded(archive: ByteStream) -> ByteStream {
    let first = Some((archive, MAX_PROFILE_BYTES, Instant::now() + WHOLE));
    let bounded = stream::unfold(first, |state| async move {
        let (mut archive, room, deadline) = state?;
        let within = SILENT.min(deadline.saturating_duration_since(Instant::now()));
        match timeout(within, archive.next()).await {
            Ok(None) => None,
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Ok(Some(Ok(piece))) => Some(match counted(&piece, room) {
                Ok(room) => (Ok(piece), Some((archive, room, deadline))),
                Err(error) => (Err(error), None),
            }),
            Err(_) => {
                let seconds = u32::try_from(SILENT.as_secs()).unwrap_or(u32::MAX);
                Some((Err(OperationError::Timeout { seconds }), None))
            }
        }
    });
    bounded.boxed()
}

/// How much may come after this piece.
fn counted(piece: &Bytes, room: u64) -> Result<u64, OperationError> {
    let too_large = || OperationError::TooLarge(format!("a profile has at most {MAX_PROFILE_BYTES} bytes"));
    room.checked_sub(piece.len() as u64).ok_or_else(too_large)
}
