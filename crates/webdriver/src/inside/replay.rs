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
use futures_util::{StreamExt as _, stream};
use time::OffsetDateTime;
use tokio::time::{Instant, timeout};

use super::{inside_error, stream as stream_of};
use crate::engine::Engine;
use crate::fault::{failed, shorten};

/// What the agent answers from its memory, and how long the first bytes of a film may take.
const QUICK: Duration = Duration::from_secs(10);
/// The first picture, and the making of a film.
const WORK: Duration = Duration::from_secs(50);
/// How long an agent may be silent in the middle of a film, and how long it may take over the whole.
const SILENT: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(600);

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
        Ok(exactly(length, stream_of(running, bytes), SILENT))
    }
}

/// So many bytes, or an error: what is cut must not be taken for the whole, and a sandbox could send without end, or for ever.
fn exactly(length: u64, bytes: ByteStream, silent: Duration) -> ByteStream {
    let first = Some((bytes, length, WHOLE));
    let checked = stream::unfold(first, move |state| async move {
        let (mut bytes, left, patience) = state?;
        let since = Instant::now();
        // Only what the sandbox takes counts, not how slowly somebody reads.
        let next = timeout(patience.min(silent), bytes.next()).await;
        let patience = patience.saturating_sub(since.elapsed());
        let fails = |error| Some((Err(error), None));
        match next {
            Err(_) => fails(InsideError::Timeout { seconds: u32::try_from(silent.as_secs()).unwrap_or(u32::MAX) }),
            Ok(Some(Err(error))) => fails(error),
            Ok(None) if left == 0 => None,
            Ok(None) => fails(InsideError::Failed("the film broke off".to_owned())),
            Ok(Some(Ok(piece))) => match left.checked_sub(piece.len() as u64) {
                Some(left) => Some((Ok(piece), Some((bytes, left, patience)))),
                None => fails(InsideError::Failed("the film is longer than it was said to be".to_owned())),
            },
        }
    });
    checked.boxed()
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::TryStreamExt as _;

    use super::*;

    async fn read(length: u64, parts: &[&'static [u8]]) -> Result<Vec<u8>, InsideError> {
        let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::from_static(part))).collect();
        Ok(exactly(length, stream::iter(parts).boxed(), SILENT).try_collect::<Vec<Bytes>>().await?.concat())
    }

    #[tokio::test]
    async fn a_film_is_as_long_as_it_was_said_to_be_or_it_is_none() {
        assert_eq!(read(5, &[b"ab", b"cde"]).await.expect("whole"), b"abcde");
        assert_eq!(read(0, &[]).await.expect("empty"), b"");
        for (parts, why) in [(&[b"ab".as_slice(), b"cd"][..], "broke off"), (&[b"ab", b"cd", b"ef"], "longer")] {
            let error = read(5, parts).await.expect_err("another length");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[tokio::test]
    async fn a_sandbox_that_falls_silent_in_the_middle_of_a_film_is_not_waited_for_for_ever() {
        let part = stream::iter([Ok(Bytes::from_static(b"ab"))]).chain(stream::pending());
        let error = exactly(5, part.boxed(), Duration::from_millis(10)).try_collect::<Vec<Bytes>>().await;
        assert!(matches!(error, Err(InsideError::Timeout { .. })), "{error:?}");
    }
}
