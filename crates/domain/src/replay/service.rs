//! The use cases of recordings.

use std::sync::Arc;

use time::Duration;

use super::{NewReplay, Replay, ReplayArchive, ReplayMachine, ReplayState};
use crate::clock::IdSource;
use crate::engine::Capability;
use crate::error::{SpecificError, UseCaseError};
use crate::ids::ReplayId;
use crate::session::Session;
use crate::session_operation::{ByteStream, OperationError, SessionOperations};

/// The use cases of recordings, which are in the sandbox of an active session, or in the archive after its end.
#[derive(Clone)]
pub struct Replays {
    machine: Arc<dyn ReplayMachine>,
    stored: ReplayArchive,
    operations: SessionOperations,
    ids: Arc<dyn IdSource>,
}

/// The error of a use case of recordings.
pub type ReplayError = UseCaseError<OperationError>;

impl SpecificError for OperationError {}

/// A requested range of the bytes of a video. Both ends are included, as in HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The bytes from the first to the last, or to the end of the video.
    From(u64, Option<u64>),
    /// The given number of bytes at the end.
    Last(u64),
}

/// A video, or a part of it.
pub struct Video {
    /// The recording.
    pub replay: Replay,
    /// The first and the last byte of the returned part; `None` for the whole video.
    pub part: Option<(u64, u64)>,
    /// The number of returned bytes.
    pub length: u64,
    /// The bytes.
    pub bytes: ByteStream,
}

impl Part {
    /// Returns the first and the last byte of the range in a video of `size` bytes; `None` if the range is empty.
    #[must_use]
    pub fn within(self, size: u64) -> Option<(u64, u64)> {
        let last = size.checked_sub(1)?;
        match self {
            Self::From(first, end) => {
                let end = end.unwrap_or(last).min(last);
                (first <= end).then_some((first, end))
            }
            Self::Last(0) => None,
            Self::Last(length) => Some((size.saturating_sub(length), last)),
        }
    }
}

impl Replays {
    /// Creates the use cases.
    #[must_use]
    pub fn new(
        machine: Arc<dyn ReplayMachine>,
        stored: ReplayArchive,
        operations: SessionOperations,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        Self { machine, stored, operations, ids }
    }

    /// Returns the time for which a video stays stored after the end of its session.
    #[must_use]
    pub fn retention(&self) -> Duration {
        self.stored.retention()
    }

    /// Starts a recording.
    ///
    /// # Errors
    /// See [`NewReplay::parse`] and [`ReplayMachine::start`]; [`OperationError::Missing`] if the session has ended.
    pub async fn start(
        &self,
        session: &Session,
        framerate: Option<i64>,
        max_duration_in_seconds: Option<i64>,
        record_audio: bool,
    ) -> Result<Replay, ReplayError> {
        let id = ReplayId::mint(self.ids.as_ref());
        let new = NewReplay::parse(id, framerate, max_duration_in_seconds, record_audio)?;
        let entered = self.operations.begin(session, Capability::Replays)?;
        // Stores the recording first, so that the end of the session includes it.
        if !self.stored.rows().begin(session.id, new.id, self.stored.clock().now()).await? {
            return Err(OperationError::Missing(format!("browser session {} not found", session.id)).into());
        }
        let started = self.machine.start(entered.browser, new).await;
        if started.is_err() {
            // If this fails, the row is settled as failed at the end of its session.
            let _ = self.stored.rows().forget(new.id).await;
        }
        Ok(started?)
    }

    /// Returns all recordings of a session, oldest first. It does not count as activity.
    ///
    /// # Errors
    /// See [`ReplayMachine::list`]; the error of the store.
    pub async fn list(&self, session: &Session) -> Result<Vec<Replay>, ReplayError> {
        if !session.is_active() {
            return Ok(self.stored.rows().of_session(session.id).await?);
        }
        let browser = self.operations.observe(session, Capability::Replays)?;
        Ok(self.machine.list(browser).await?)
    }

    /// Stops a recording. Does nothing if it has ended.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if the recording does not exist; the error of the store.
    pub async fn stop(&self, session: &Session, which: &str) -> Result<Replay, ReplayError> {
        let id = id(which)?;
        if !session.is_active() {
            return self.find(session, id).await;
        }
        let entered = self.operations.begin(session, Capability::Replays)?;
        Ok(self.machine.stop(entered.browser, id).await?)
    }

    async fn find(&self, session: &Session, id: ReplayId) -> Result<Replay, ReplayError> {
        let all = self.list(session).await?;
        Ok(all.into_iter().find(|replay| replay.id == id).ok_or_else(|| missing(&id.to_string()))?)
    }

    /// Returns the video of an ended recording, or a part of it. It does not count as activity. The saved part of a failed recording is returned only
    /// if `also_failed` is set.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if the recording does not exist; [`OperationError::State`] while it runs, if it
    /// failed, and if its video is damaged; [`OperationError::OutsideRange`]; the error of the store.
    pub async fn video(
        &self,
        session: &Session,
        which: &str,
        part: Option<Part>,
        also_failed: bool,
    ) -> Result<Video, ReplayError> {
        let replay = self.find(session, id(which)?).await?;
        match replay.state {
            ReplayState::Running => return Err(running(session).into()),
            ReplayState::Failed if !also_failed || replay.size_bytes == 0 => return Err(failed(&replay).into()),
            ReplayState::Failed | ReplayState::Finished => {}
        }
        let size = replay.size_bytes;
        let part = part.map(|part| part.within(size).ok_or(OperationError::OutsideRange { size })).transpose()?;
        let (offset, length) = match part {
            Some((first, last)) => (first, last - first + 1),
            None => (0, replay.size_bytes),
        };
        let bytes = if session.is_active() {
            let browser = self.operations.observe(session, Capability::Replays)?;
            self.machine.read(browser, replay.id, offset, length).await?
        } else {
            self.stored.read(session.id, &replay, offset, length).await?
        };
        Ok(Video { replay, part, length, bytes })
    }
}

fn id(which: &str) -> Result<ReplayId, OperationError> {
    which.parse().map_err(|_| missing(which))
}

fn missing(which: &str) -> OperationError {
    OperationError::Missing(format!("recording {which} not found"))
}

fn running(session: &Session) -> OperationError {
    let why = if session.is_active() { "the recording is running; stop it first" } else { "the video is being stored" };
    OperationError::State(why.to_owned())
}

fn failed(replay: &Replay) -> OperationError {
    let why = replay.detail.as_deref().unwrap_or("for an unknown reason");
    let rest = match replay.size_bytes {
        0 => "nothing of it could be saved",
        _ => "partial=true gives what could be saved of it",
    };
    OperationError::State(format!("the recording failed: {why}; {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_limited_to_the_video_and_none_is_outside() {
        assert_eq!(Part::From(0, None).within(10), Some((0, 9)));
        assert_eq!(Part::From(3, Some(5)).within(10), Some((3, 5)));
        assert_eq!(Part::From(9, Some(u64::MAX)).within(10), Some((9, 9)));
        assert_eq!(Part::Last(4).within(10), Some((6, 9)));
        assert_eq!(Part::Last(u64::MAX).within(10), Some((0, 9)));
        for (part, size) in
            [(Part::From(10, None), 10), (Part::From(5, Some(4)), 10), (Part::Last(0), 10), (Part::Last(1), 0)]
        {
            assert_eq!(part.within(size), None, "{part:?} of {size}");
        }
    }
}
