//! Recordings, made by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent::client::ClientError;
use casement_agent::protocol::replay::{self as words, LIST, READ, ReadReplay, ReplayName, START, STOP};
use casement_agent::protocol::{ErrorBody, ErrorCode};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::{BrowserId, ReplayId};
use casement_domain::inside::{ByteStream, InsideError};
use casement_domain::replay::{NewReplay, Replay, ReplayMachine, ReplayState};
use time::OffsetDateTime;

use super::{inside_error, stream};
use crate::engine::Engine;
use crate::fault::{failed, shorten};

/// What the agent answers from its memory, and how long the first bytes of a film may take.
const QUICK: Duration = Duration::from_secs(10);
/// The first picture, and the making of a film.
const WORK: Duration = Duration::from_secs(50);

#[async_trait]
impl ReplayMachine for Engine {
    async fn start(&self, browser: BrowserId, new: NewReplay) -> Result<Replay, InsideError> {
        let asked = words::StartReplay {
            replay_id: new.id.to_string(),
            framerate: new.framerate,
            max_duration_seconds: new.max_duration_seconds,
        };
        let running = self.running(browser)?;
        let started = running.agent.call(START, &asked, WORK).await;
        replay(started.map_err(|error| inside_error(&running, &error))?)
    }

    async fn list(&self, browser: BrowserId) -> Result<Vec<Replay>, InsideError> {
        let running = self.running(browser)?;
        let listed = running.agent.call::<words::Replays>(LIST, &serde_json::json!({}), QUICK).await;
        listed.map_err(|error| inside_error(&running, &error))?.replays.into_iter().map(replay).collect()
    }

    async fn stop(&self, browser: BrowserId, id: ReplayId) -> Result<Replay, InsideError> {
        let running = self.running(browser)?;
        let stopped = running.agent.call(STOP, &ReplayName { replay_id: id.to_string() }, WORK).await;
        replay(stopped.map_err(|error| inside_error(&running, &error))?)
    }

    async fn read(
        &self,
        browser: BrowserId,
        id: ReplayId,
        offset: u64,
        length: u64,
    ) -> Result<ByteStream, InsideError> {
        let running = self.running(browser)?;
        let asked = ReadReplay { replay_id: id.to_string(), offset, length: Some(length) };
        let bytes =
            running.agent.download(READ, &asked, QUICK).await.map_err(|error| inside_error(&running, &error))?;
        Ok(stream(running, bytes))
    }
}

impl Engine {
    /// Whether a recording runs. A sandbox of an earlier version knows of none.
    pub(crate) async fn recording_runs(&self, browser: BrowserId) -> Result<bool, EngineError> {
        let running = self.running(browser)?;
        match running.agent.call::<words::Replays>(LIST, &serde_json::json!({}), QUICK).await {
            Ok(listed) => Ok(listed.replays.iter().any(|replay| replay.state == words::ReplayState::Running)),
            Err(ClientError::Refused(ErrorBody { code: ErrorCode::NotFound, .. })) => Ok(false),
            Err(error) => Err(running.failed(&error)),
        }
    }
}

/// A recording in the domain's words.
fn replay(told: words::Replay) -> Result<Replay, InsideError> {
    let nonsense = || failed(EngineFault::AgentError, "the agent told of a recording that cannot be");
    let moment =
        |ms: u64| OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).map_err(|_| nonsense());
    let state = match told.state {
        words::ReplayState::Finished => ReplayState::Finished,
        words::ReplayState::Failed => ReplayState::Failed,
        words::ReplayState::Running | words::ReplayState::Finishing | words::ReplayState::Other => ReplayState::Running,
    };
    let finished = told.finished_at_ms.filter(|_| state != ReplayState::Running);
    Ok(Replay {
        id: told.replay_id.parse().map_err(|_| nonsense())?,
        started_at: moment(told.started_at_ms)?,
        finished_at: finished.map(moment).transpose()?,
        state,
        size_bytes: told.size_bytes,
        detail: told.detail.map(shorten),
    })
}
