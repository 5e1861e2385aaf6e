//! What recordings need from outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{NewReplay, Replay};
use crate::ids::{BrowserId, ReplayId, SessionId};
use crate::session_operation::{ByteStream, OperationError};
use crate::store_error::StoreError;

/// Records inside a session's machine.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ReplayMachine: Send + Sync {
    /// Begins to record; returns when the first picture is taken. A start that fails leaves no recording.
    ///
    /// # Errors
    /// [`OperationError::State`] while another one runs, [`OperationError::Limit`], [`OperationError::DiskFull`].
    async fn start(&self, browser: BrowserId, new: NewReplay) -> Result<Replay, OperationError>;

    /// All recordings of the session, oldest first.
    async fn list(&self, browser: BrowserId) -> Result<Vec<Replay>, OperationError>;

    /// Stops a recording and makes its film; of one that has ended, nothing is done.
    ///
    /// # Errors
    /// [`OperationError::Missing`].
    async fn stop(&self, browser: BrowserId, id: ReplayId) -> Result<Replay, OperationError>;

    /// `length` bytes of a film from `offset` on: exactly so many, or the stream ends with an error.
    ///
    /// # Errors
    /// [`OperationError::Missing`]; [`OperationError::State`] while it runs, or when the film was damaged.
    async fn read(
        &self,
        browser: BrowserId,
        id: ReplayId,
        offset: u64,
        length: u64,
    ) -> Result<ByteStream, OperationError>;
}

/// Where recordings are noted, so that none vanishes with its session; without their bytes. A recording is noted before it begins and
/// runs until its session has ended and it was settled.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ReplayRepository: Send + Sync {
    /// Notes a recording that is about to begin, unless its session has ended: `false` then.
    async fn begin(&self, session: SessionId, id: ReplayId, at: OffsetDateTime) -> Result<bool, StoreError>;

    /// Forgets a recording that never began, or whose time is over.
    async fn forget(&self, id: ReplayId) -> Result<(), StoreError>;

    /// All that are noted of a session, oldest first. One with bytes that is not running is kept.
    async fn of_session(&self, session: SessionId) -> Result<Vec<Replay>, StoreError>;

    /// Those of a session that are not settled.
    async fn unsettled(&self, session: SessionId) -> Result<Vec<ReplayId>, StoreError>;

    /// Notes, once, how a recording is at the end of its session. One with bytes is kept.
    async fn settle(&self, replay: &Replay) -> Result<(), StoreError>;

    /// Settles those of ended sessions whose browser is gone as failed.
    async fn reconcile_lost(&self, at: OffsetDateTime, why: &str) -> Result<(), StoreError>;

    /// How many bytes are kept, of all recordings together.
    async fn kept_bytes(&self) -> Result<u64, StoreError>;

    /// Recordings of sessions that ended before that time, some hundred at most.
    async fn outdated(&self, before: OffsetDateTime) -> Result<Vec<(SessionId, ReplayId)>, StoreError>;

    /// Those of `ids` that are kept.
    async fn kept(&self, ids: &[ReplayId]) -> Result<Vec<ReplayId>, StoreError>;
}
