//! The ports of recordings.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{NewReplay, Replay};
use crate::ids::{BrowserId, ReplayId, SessionId};
use crate::session_operation::{ByteStream, OperationError};
use crate::store_error::StoreError;

/// The port that records in a sandbox.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ReplayMachine: Send + Sync {
    /// Starts a recording; returns after the first frame. A failed start leaves no recording.
    ///
    /// # Errors
    /// [`OperationError::State`] while another recording runs; [`OperationError::Limit`] if the session has too many
    /// recordings or they take all of their disk space; [`OperationError::DiskFull`].
    async fn start(&self, browser: BrowserId, new: NewReplay) -> Result<Replay, OperationError>;

    /// Returns all recordings of the session, oldest first.
    async fn list(&self, browser: BrowserId) -> Result<Vec<Replay>, OperationError>;

    /// Stops a recording and completes its video. Does nothing if the recording has ended.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if the recording does not exist.
    async fn stop(&self, browser: BrowserId, id: ReplayId) -> Result<Replay, OperationError>;

    /// Returns exactly `length` bytes of a video from `offset` on; the stream ends with an error if there are fewer.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if there is none; [`OperationError::State`] if it runs or its video is damaged.
    async fn read(
        &self,
        browser: BrowserId,
        id: ReplayId,
        offset: u64,
        length: u64,
    ) -> Result<ByteStream, OperationError>;
}

/// The port to the stored recordings, without their bytes. A recording is stored before it begins, so that it outlives
/// its session, and counts as running until its session has ended and its final state is stored ("settled").
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ReplayRepository: Send + Sync {
    /// Stores a recording that is about to begin; returns `false` if its session has ended.
    async fn begin(&self, session: SessionId, id: ReplayId, at: OffsetDateTime) -> Result<bool, StoreError>;

    /// Deletes a recording that never began, or that has expired.
    async fn forget(&self, id: ReplayId) -> Result<(), StoreError>;

    /// Returns the recordings of a session, oldest first. An ended one with a size above 0 has a stored video.
    async fn of_session(&self, session: SessionId) -> Result<Vec<Replay>, StoreError>;

    /// Returns the recordings of a session that are not settled.
    async fn unsettled(&self, session: SessionId) -> Result<Vec<ReplayId>, StoreError>;

    /// Stores the final state of a recording at the end of its session, once. With a size above 0 its video is stored.
    async fn settle(&self, replay: &Replay) -> Result<(), StoreError>;

    /// Settles the unsettled recordings of ended sessions whose browser no longer exists as failed.
    async fn reconcile_lost(&self, at: OffsetDateTime, why: &str) -> Result<(), StoreError>;

    /// Returns the bytes of all stored videos.
    async fn stored_bytes(&self) -> Result<u64, StoreError>;

    /// Returns a few hundred recordings of sessions that ended before this time.
    async fn outdated(&self, before: OffsetDateTime) -> Result<Vec<(SessionId, ReplayId)>, StoreError>;

    /// Returns those of `ids` that have a stored video.
    async fn stored(&self, ids: &[ReplayId]) -> Result<Vec<ReplayId>, StoreError>;
}
