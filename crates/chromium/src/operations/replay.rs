//! Recordings by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::replay::{self as wire, LIST, READ, ReadReplay, ReplayName, START, STOP};
use casement_agent_protocol::{ErrorBody, ErrorCode};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::{BrowserId, ReplayId};
use casement_domain::replay::{NewReplay, Replay, ReplayMachine, ReplayState};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout};

use super::lines::parse_timestamp;
use super::stream as stream_of;
use crate::engine::Engine;
use crate::fault::{failed, shorten};

/// The timeout of requests that the agent answers from memory, and of the first bytes of a video.
const QUICK_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of starting a recording, and of finishing a video.
const WORK_TIMEOUT: Duration = Duration::from_secs(50);
/// The longest pause of a video while it is read, and its longest transfer.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum number of recordings that an agent retains.
const MAX_RECORDINGS: usize = 100;

#[async_trait]
impl ReplayMachine for Engine {
    async fn start(&self, browser: BrowserId, new: NewReplay) -> Result<Replay, OperationError> {
        let request = wire::StartReplay {
            replay_id: new.id.to_string(),
            framerate: new.framerate,
            max_duration_seconds: new.max_duration_seconds,
        };
        let started = self.agent_call(browser, START, &request, WORK_TIMEOUT).await?;
        received(started, new.id, self.config().disk_bytes)
    }

    async fn list(&self, browser: BrowserId) -> Result<Vec<Replay>, OperationError> {
        let listed = self.agent_call(browser, LIST, &serde_json::json!({}), QUICK_TIMEOUT).await?;
        all(listed, self.config().disk_bytes)
    }

    async fn stop(&self, browser: BrowserId, id: ReplayId) -> Result<Replay, OperationError> {
        let request = ReplayName { replay_id: id.to_string() };
        received(self.agent_call(browser, STOP, &request, WORK_TIMEOUT).await?, id, self.config().disk_bytes)
    }

    async fn read(
        &self,
        browser: BrowserId,
        id: ReplayId,
        offset: u64,
        length: u64,
    ) -> Result<ByteStream, OperationError> {
        let request = ReadReplay { replay_id: id.to_string(), offset, length: Some(length) };
        let (running, bytes) = self.agent_download(browser, READ, &request, QUICK_TIMEOUT).await?;
        Ok(exactly(length, stream_of(running, bytes), READ_TIMEOUT))
    }
}

/// Ends a stream with an error if it does not have exactly `length` bytes: a truncated video must not look complete,
/// and a sandbox could send without end.
fn exactly(length: u64, bytes: ByteStream, read_timeout: Duration) -> ByteStream {
    let first = Some((bytes, length, TRANSFER_TIMEOUT));
    let checked = stream::unfold(first, move |state| async move {
        let (mut bytes, left, time_left) = state?;
        let since = Instant::now();
        // Only the sandbox's time counts, not that of a slow reader.
        let next = timeout(time_left.min(read_timeout), bytes.next()).await;
        let time_left = time_left.saturating_sub(since.elapsed());
        let fails = |error| Some((Err(error), None));
        match next {
            Err(_) => {
                fails(OperationError::Timeout { seconds: u32::try_from(read_timeout.as_secs()).unwrap_or(u32::MAX) })
            }
            Ok(Some(Err(error))) => fails(error),
            Ok(None) if left == 0 => None,
            Ok(None) => fails(OperationError::Failed("the video ended early".to_owned())),
            Ok(Some(Ok(piece))) => match left.checked_sub(piece.len() as u64) {
                Some(left) => Some((Ok(piece), Some((bytes, left, time_left)))),
                None => fails(OperationError::Failed("the video is longer than announced".to_owned())),
            },
        }
    });
    checked.boxed()
}

impl Engine {
    /// Returns true if a recording runs. Sandboxes of an earlier version have none.
    pub(crate) async fn is_recording_now(&self, browser: BrowserId) -> Result<bool, EngineError> {
        let running = self.running(browser)?;
        match running.agent.call::<wire::Replays>(LIST, &serde_json::json!({}), QUICK_TIMEOUT).await {
            Ok(listed) => Ok(listed.replays.iter().any(|replay| replay.state == wire::ReplayState::Running)),
            Err(ClientError::Refused(ErrorBody { code: ErrorCode::NotFound, .. })) => Ok(false),
            Err(error) => Err(running.failed(&error)),
        }
    }
}

fn invalid() -> OperationError {
    failed(EngineFault::AgentError, "the agent sent an invalid recording").into()
}

/// Converts the recordings of a session. Refuses too many of them, and ended ones that exceed the session's disk.
fn all(listed: wire::Replays, disk_bytes: u64) -> Result<Vec<Replay>, OperationError> {
    if listed.replays.len() > MAX_RECORDINGS {
        return Err(invalid());
    }
    let all = listed.replays.into_iter().map(replay).collect::<Result<Vec<_>, _>>()?;
    on_disk(&all, disk_bytes)?;
    Ok(all)
}

/// Converts a recording. Refuses one with another id than the requested one, and one that exceeds the session's disk.
fn received(received: wire::Replay, request: ReplayId, disk_bytes: u64) -> Result<Replay, OperationError> {
    let replay = replay(received)?;
    if replay.id != request {
        return Err(invalid());
    }
    on_disk(std::slice::from_ref(&replay), disk_bytes)?;
    Ok(replay)
}

/// Checks that the ended recordings fit on the session's disk. Ignores a running recording, which cannot be read yet.
fn on_disk(replays: &[Replay], disk_bytes: u64) -> Result<(), OperationError> {
    let ended = replays.iter().filter(|one| one.state != ReplayState::Running);
    let all = ended.fold(0, |all: u64, one| all.saturating_add(one.size_bytes));
    if all > disk_bytes { Err(invalid()) } else { Ok(()) }
}

/// Converts a recording to the domain's value.
fn replay(received: wire::Replay) -> Result<Replay, OperationError> {
    let state = match received.state {
        wire::ReplayState::Finished => ReplayState::Finished,
        wire::ReplayState::Failed => ReplayState::Failed,
        wire::ReplayState::Running | wire::ReplayState::Finishing | wire::ReplayState::Other => ReplayState::Running,
    };
    let finished_at = match state {
        ReplayState::Running => None,
        ReplayState::Finished | ReplayState::Failed => {
            Some(parse_timestamp(received.finished_at_ms.ok_or_else(invalid)?)?)
        }
    };
    Ok(Replay {
        id: received.replay_id.parse().map_err(|_| invalid())?,
        started_at: parse_timestamp(received.started_at_ms)?,
        finished_at,
        state,
        size_bytes: received.size_bytes,
        detail: received.detail.map(shorten),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use casement_domain::testing::CountingIds;
    use futures_util::TryStreamExt as _;

    use super::*;

    const DISK: u64 = 1000;

    fn word(id: ReplayId, state: wire::ReplayState, size_bytes: u64) -> wire::Replay {
        let finished_at_ms = Some(2000);
        wire::Replay { replay_id: id.to_string(), started_at_ms: 1000, finished_at_ms, state, size_bytes, detail: None }
    }

    fn finished(size_bytes: u64) -> wire::Replay {
        word(ReplayId::mint(&CountingIds::default()), wire::ReplayState::Finished, size_bytes)
    }

    fn list(replays: Vec<wire::Replay>) -> Result<Vec<Replay>, OperationError> {
        all(wire::Replays { replays }, DISK)
    }

    #[test]
    fn an_ended_recording_has_an_end_time() {
        assert!(replay(finished(1)).is_ok());
        for state in [wire::ReplayState::Finished, wire::ReplayState::Failed] {
            assert!(replay(wire::Replay { finished_at_ms: None, state, ..finished(1) }).is_err());
        }
        let running = replay(wire::Replay { state: wire::ReplayState::Running, ..finished(1) }).expect("it runs");
        assert_eq!(running.finished_at, None);
    }

    #[test]
    fn a_response_for_another_recording_is_refused() {
        let ids = CountingIds::default();
        let (one, other) = (ReplayId::mint(&ids), ReplayId::mint(&ids));
        let answer = || word(one, wire::ReplayState::Finished, DISK);
        assert_eq!(received(answer(), one, DISK).expect("the one").id, one);
        assert!(received(answer(), other, DISK).is_err());
    }

    #[test]
    fn too_many_recordings_are_refused() {
        assert_eq!(list(vec![finished(1); MAX_RECORDINGS]).expect("all").len(), MAX_RECORDINGS);
        assert!(list(vec![finished(1); MAX_RECORDINGS + 1]).is_err());
    }

    #[test]
    fn videos_larger_than_the_disk_are_refused() {
        assert!(list(vec![finished(DISK / 2), finished(DISK / 2)]).is_ok());
        assert!(list(vec![finished(DISK / 2), finished(DISK)]).is_err());
        assert!(list(vec![finished(u64::MAX), finished(1)]).is_err());
        let large = finished(DISK + 1);
        let id = large.replay_id.parse().expect("an id");
        assert!(received(large, id, DISK).is_err());
        assert!(list(vec![word(id, wire::ReplayState::Running, u64::MAX)]).is_ok(), "nobody reads what runs");
    }

    async fn read(length: u64, parts: &[&'static [u8]]) -> Result<Vec<u8>, OperationError> {
        let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::from_static(part))).collect();
        Ok(exactly(length, stream::iter(parts).boxed(), READ_TIMEOUT).try_collect::<Vec<Bytes>>().await?.concat())
    }

    #[tokio::test]
    async fn a_video_of_another_length_is_an_error() {
        assert_eq!(read(5, &[b"ab", b"cde"]).await.expect("whole"), b"abcde");
        assert_eq!(read(0, &[]).await.expect("empty"), b"");
        for (parts, why) in [(&[b"ab".as_slice(), b"cd"][..], "ended early"), (&[b"ab", b"cd", b"ef"], "longer")] {
            let error = read(5, parts).await.expect_err("another length");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[tokio::test]
    async fn a_stalled_video_times_out() {
        let part = stream::iter([Ok(Bytes::from_static(b"ab"))]).chain(stream::pending());
        let error = exactly(5, part.boxed(), Duration::from_millis(10)).try_collect::<Vec<Bytes>>().await;
        assert!(matches!(error, Err(OperationError::Timeout { .. })), "{error:?}");
    }
}
