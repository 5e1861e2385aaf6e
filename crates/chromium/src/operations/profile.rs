//! Profiles of browsers: saved when a session ends, and loaded into running and starting browsers.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::profile::{CAPTURE, LOAD};
use casement_domain::browser::{EngineError, EngineFault, Launch};
use casement_domain::ids::BrowserId;
use casement_domain::profile::{LoadedProfile, MAX_PROFILE_BYTES, ProfileMachine};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout};

use super::{Content, operation_error, stream as stream_of};
use crate::engine::Engine;
use crate::fault::{Condition, failed, shorten};
use crate::restart::RestartError;

/// The timeout of closing a browser, including its last writes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest pause of an archive while it is read, and its longest transfer in either direction.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);
/// The timeout of unpacking an archive that the agent has received.
const UNPACK_TIMEOUT: Duration = Duration::from_secs(60);

#[async_trait]
impl ProfileMachine for Engine {
    async fn capture(&self, browser: BrowserId, _profile: LoadedProfile) -> Result<ByteStream, OperationError> {
        let running = self.running(browser)?;
        let _turn = running.changing.lock().await;
        let (browser, archive) = self.agent_download(browser, CAPTURE, &(), CLOSE_TIMEOUT).await?;
        Ok(bounded(stream_of(browser, archive)))
    }

    async fn load(&self, browser: BrowserId, archive: ByteStream) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let _turn = running.changing.lock().await;
        upload_profile(&running.agent, archive).await.map_err(|fault| match fault {
            LoadProfileError::Unusable(why) => OperationError::Engine(EngineError::Profile(why)),
            LoadProfileError::Unavailable(why) => OperationError::Engine(EngineError::Unavailable(why)),
            LoadProfileError::Failed(error) => operation_error(&running, &error),
        })?;
        let request = RestartRequest { profile: true, ..RestartRequest::default() };
        self.restart(&running, &request).await.map_err(|error| match error {
            RestartError::Extension(why) => OperationError::Failed(why),
            RestartError::Refused(body) => operation_error(&running, &ClientError::Refused(body)),
            RestartError::Failed(error) => error.into(),
        })
    }
}

impl Engine {
    /// Sends the profile of a starting browser to its agent. Returns false if there is no stored profile.
    pub(crate) async fn load_profile(&self, launch: &Launch, agent: &AgentClient) -> Result<bool, EngineError> {
        let Some(profile) = &launch.shape.profile else { return Ok(false) };
        let no_source = || failed(EngineFault::AgentError, "this engine has no place to get profiles from");
        let source = self.0.profiles.get().ok_or_else(no_source)?;
        let archive = source.archive(profile).await.map_err(|error| {
            tracing::error!(browser = %launch.id, profile = %profile.id, %error, "cannot read a profile");
            match error {
                OperationError::Unavailable(why) => EngineError::Unavailable(shorten(why)),
                other => EngineError::Profile(shorten(other.to_string())),
            }
        })?;
        let Some(archive) = archive else { return Ok(false) };
        let uploaded = upload_profile(agent, archive).await.map(|()| true);
        uploaded.map_err(|fault| match fault {
            LoadProfileError::Unusable(why) => {
                tracing::error!(browser = %launch.id, profile = %profile.id, why, "a profile is invalid");
                EngineError::Profile(why)
            }
            LoadProfileError::Unavailable(why) => EngineError::Unavailable(why),
            LoadProfileError::Failed(error) => crate::fault::call(launch.id, Condition::Alive, &error),
        })
    }
}

/// A profile could not be sent to an agent.
enum LoadProfileError {
    /// The archive is truncated, altered, too large, or not a profile.
    Unusable(String),
    /// The store does not respond any more.
    Unavailable(String),
    Failed(ClientError),
}

async fn upload_profile(agent: &AgentClient, archive: ByteStream) -> Result<(), LoadProfileError> {
    let (noted, content) = Content::of(archive);
    let uploaded =
        timeout(TRANSFER_TIMEOUT, agent.upload::<serde_json::Value>(LOAD, &(), content, UNPACK_TIMEOUT)).await;
    let Err(error) = uploaded.unwrap_or(Err(ClientError::Timeout(TRANSFER_TIMEOUT))) else { return Ok(()) };
    match noted.fault() {
        Some(OperationError::Unavailable(why)) => return Err(LoadProfileError::Unavailable(shorten(why))),
        Some(fault) => return Err(LoadProfileError::Unusable(shorten(fault.to_string()))),
        None => {}
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

/// Bounds an archive's length and duration, because a sandbox could send without end.
fn bounded(archive: ByteStream) -> ByteStream {
    let first = Some((archive, MAX_PROFILE_BYTES, Instant::now() + TRANSFER_TIMEOUT));
    let bounded = stream::unfold(first, |state| async move {
        let (mut archive, left, deadline) = state?;
        let within = READ_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()));
        match timeout(within, archive.next()).await {
            Ok(None) => None,
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Ok(Some(Ok(piece))) => Some(match counted(&piece, left) {
                Ok(left) => (Ok(piece), Some((archive, left, deadline))),
                Err(error) => (Err(error), None),
            }),
            Err(_) => {
                let seconds = u32::try_from(READ_TIMEOUT.as_secs()).unwrap_or(u32::MAX);
                Some((Err(OperationError::Timeout { seconds }), None))
            }
        }
    });
    bounded.boxed()
}

/// Returns the number of bytes that may follow after this piece.
fn counted(piece: &Bytes, left: u64) -> Result<u64, OperationError> {
    let too_large = || OperationError::TooLarge(format!("a profile has at most {MAX_PROFILE_BYTES} bytes"));
    left.checked_sub(piece.len() as u64).ok_or_else(too_large)
}
