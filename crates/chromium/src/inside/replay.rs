//! Recordings, made by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::replay::{self as words, LIST, READ, ReadReplay, ReplayName, START, STOP};
use casement_agent_protocol::{ErrorBody, ErrorCode};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::{BrowserId, ReplayId};
use casement_domain::replay::{NewReplay, Replay, ReplayMachine, ReplayState};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout};

use super::lines::moment;
use super::{operation_error, stream as stream_of};
use crate::engine::Engine;
use crate::fault::{failed, shorten};

/// What the agent answers from its memory, and how long the first bytes of a film may take.
const QUICK: Duration = Duration::from_secs(10);
/// The first picture, and the making of a film.
const WORK: Duration = Duration::from_secs(50);
/// How long an agent may be silent in the middle of a film, and how long it may take over the whole.
const SILENT: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(600);
/// As many as an agent keeps.
const MOST: usize = 100;

#[async_trait]
impl ReplayMachine for Engine {
    async fn start(&self, browser: BrowserId, new: NewReplay) -> Result<Replay, OperationError> {
        let asked = words::StartReplay {
            replay_id: new.id.to_string(),
            framerate: new.framerate,
            max_duration_seconds: new.max_duration_seconds,
        };
        let running = self.running(browser)?;
        let started = running.agent.call(START, &asked, WORK).await;
        told(started.map_err(|error| operation_error(&running, &error))?, new.id, self.config().disk_bytes)
    }

    async fn list(&self, browser: BrowserId) -> Result<Vec<Replay>, OperationError> {
        let running = self.running(browser)?;
        let listed = running.agent.call::<words::Replays>(LIST, &serde_json::json!({}), QUICK).await;
        all(listed.map_err(|error| operation_error(&running, &error))?, self.config().disk_bytes)
    }

    async fn stop(&self, browser: BrowserId, id: ReplayId) -> Result<Replay, OperationError> {
        let running = self.running(browser)?;
        let stopped = running.agent.call(STOP, &ReplayName { replay_id: id.to_string() }, WORK).await;
        told(stopped.map_err(|error| operation_error(&running, &error))?, id, self.config().disk_bytes)
    }

    async fn read(
        &self,
        browser: BrowserId,
        id: ReplayId,
        offset: u64,
        length: u64,
    ) -> Result<ByteStream, OperationError> {
        let running = self.running(browser)?;
        let asked = ReadReplay { replay_id: id.to_string(), offset, length: Some(length) };
        let bytes =
            running.agent.download(READ, &asked, QUICK).await.map_err(|error| operation_error(&running, &error))?;
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
            Err(_) => fails(OperationError::Timeout { seconds: u32::try_from(silent.as_secs()).unwrap_or(u32::MAX) }),
            Ok(Some(Err(error))) => fails(error),
            Ok(None) if left == 0 => None,
            Ok(None) => fails(OperationError::Failed("the film broke off".to_owned())),
            Ok(Some(Ok(piece))) => match left.checked_sub(piece.len() as u64) {
                Some(left) => Some((Ok(piece), Some((bytes, left, patience)))),
                None => fails(OperationError::Failed("the film is longer than it was said to be".to_owned())),
            },
        }
    });
    checked.boxed()
}

impl Engine {
    /// Whether a recording runs. A sandbox of an earlier version knows of none.
    pub(crate) async fn is_recording_now(&self, browser: BrowserId) -> Result<bool, EngineError> {
        let running = self.running(browser)?;
        match running.agent.call::<words::Replays>(LIST, &serde_json::json!({}), QUICK).await {
            Ok(listed) => Ok(listed.replays.iter().any(|replay| replay.state == words::ReplayState::Running)),
            Err(ClientError::Refused(ErrorBody { code: ErrorCode::NotFound, .. })) => Ok(false),
            Err(error) => Err(running.failed(&error)),
        }
    }
}

fn nonsense() -> OperationError {
    failed(EngineFault::AgentError, "the agent told of a recording that cannot be").into()
}

/// The recordings of a session. There are not more than it keeps, and the films of those that ended lie on its disk.
fn all(listed: words::Replays, disk_bytes: u64) -> Result<Vec<Replay>, OperationError> {
    if listed.replays.len() > MOST {
        return Err(nonsense());
    }
    let all = listed.replays.into_iter().map(replay).collect::<Result<Vec<_>, _>>()?;
    on_disk(&all, disk_bytes)?;
    Ok(all)
}

/// The recording that was asked for.
fn told(told: words::Replay, asked: ReplayId, disk_bytes: u64) -> Result<Replay, OperationError> {
    let replay = replay(told)?;
    if replay.id != asked {
        return Err(nonsense());
    }
    on_disk(std::slice::from_ref(&replay), disk_bytes)?;
    Ok(replay)
}

/// Nobody reads what runs, so its size is only a word.
fn on_disk(replays: &[Replay], disk_bytes: u64) -> Result<(), OperationError> {
    let ended = replays.iter().filter(|one| one.state != ReplayState::Running);
    let all = ended.fold(0, |all: u64, one| all.saturating_add(one.size_bytes));
    if all > disk_bytes { Err(nonsense()) } else { Ok(()) }
}

/// A recording in the domain's words.
fn replay(told: words::Replay) -> Result<Replay, OperationError> {
    let state = match told.state {
        words::ReplayState::Finished => ReplayState::Finished,
        words::ReplayState::Failed => ReplayState::Failed,
        words::ReplayState::Running | words::ReplayState::Finishing | words::ReplayState::Other => ReplayState::Running,
    };
    let finished_at = match state {
        ReplayState::Running => None,
        ReplayState::Finished | ReplayState::Failed => Some(moment(told.finished_at_ms.ok_or_else(nonsense)?)?),
    };
    Ok(Replay {
        id: told.replay_id.parse().map_err(|_| nonsense())?,
        started_at: moment(told.started_at_ms)?,
        finished_at,
        state,
        size_bytes: told.size_bytes,
        detail: told.detail.map(shorten),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use casement_domain::testing::CountingIds;
    use futures_util::TryStreamExt as _;

    use super::*;

    const DISK: u64 = 1000;

    fn word(id: ReplayId, state: words::ReplayState, size_bytes: u64) -> words::Replay {
        let finished_at_ms = Some(2000);
        words::Replay {
            replay_id: id.to_string(),
            started_at_ms: 1000,
            finished_at_ms,
            state,
            size_bytes,
            detail: None,
        }
    }

    fn finished(size_bytes: u64) -> words::Replay {
        word(ReplayId::mint(&CountingIds::default()), words::ReplayState::Finished, size_bytes)
    }

    fn list(replays: Vec<words::Replay>) -> Result<Vec<Replay>, OperationError> {
        all(words::Replays { replays }, DISK)
    }

    #[test]
    fn what_has_ended_says_when() {
        assert!(replay(finished(1)).is_ok());
        for state in [words::ReplayState::Finished, words::ReplayState::Failed] {
            assert!(replay(words::Replay { finished_at_ms: None, state, ..finished(1) }).is_err());
        }
        let running = replay(words::Replay { state: words::ReplayState::Running, ..finished(1) }).expect("it runs");
        assert_eq!(running.finished_at, None);
    }

    #[test]
    fn an_answer_is_about_what_was_asked_for() {
        let ids = CountingIds::default();
        let (one, other) = (ReplayId::mint(&ids), ReplayId::mint(&ids));
        let answer = || word(one, words::ReplayState::Finished, DISK);
        assert_eq!(told(answer(), one, DISK).expect("the one").id, one);
        assert!(told(answer(), other, DISK).is_err());
    }

    #[test]
    fn a_session_tells_of_no_more_recordings_than_it_keeps() {
        assert_eq!(list(vec![finished(1); MOST]).expect("all").len(), MOST);
        assert!(list(vec![finished(1); MOST + 1]).is_err());
    }

    #[test]
    fn films_are_not_larger_than_the_disk_on_which_they_lie() {
        assert!(list(vec![finished(DISK / 2), finished(DISK / 2)]).is_ok());
        assert!(list(vec![finished(DISK / 2), finished(DISK)]).is_err());
        assert!(list(vec![finished(u64::MAX), finished(1)]).is_err());
        let large = finished(DISK + 1);
        let id = large.replay_id.parse().expect("an id");
        assert!(told(large, id, DISK).is_err());
        assert!(list(vec![word(id, words::ReplayState::Running, u64::MAX)]).is_ok(), "nobody reads what runs");
    }

    async fn read(length: u64, parts: &[&'static [u8]]) -> Result<Vec<u8>, OperationError> {
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
        assert!(matches!(error, Err(OperationError::Timeout { .. })), "{error:?}");
    }
}
