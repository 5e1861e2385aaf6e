//! What recordings need from outside.

use async_trait::async_trait;

use super::{NewReplay, Replay};
use crate::ids::{BrowserId, ReplayId};
use crate::inside::{ByteStream, InsideError};

/// Records inside a session's machine.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ReplayMachine: Send + Sync {
    /// Begins to record; returns when the first picture is taken. A start that fails leaves no recording.
    ///
    /// # Errors
    /// [`InsideError::State`] while another one runs, [`InsideError::Limit`], [`InsideError::DiskFull`].
    async fn start(&self, browser: BrowserId, new: NewReplay) -> Result<Replay, InsideError>;

    /// All recordings of the session, oldest first.
    async fn list(&self, browser: BrowserId) -> Result<Vec<Replay>, InsideError>;

    /// Stops a recording and makes its film; of one that has ended, nothing is done.
    ///
    /// # Errors
    /// [`InsideError::Missing`].
    async fn stop(&self, browser: BrowserId, id: ReplayId) -> Result<Replay, InsideError>;

    /// `length` bytes of a film from `offset` on.
    ///
    /// # Errors
    /// [`InsideError::Missing`]; [`InsideError::State`] while it runs, or when the film was damaged.
    async fn read(&self, browser: BrowserId, id: ReplayId, offset: u64, length: u64)
    -> Result<ByteStream, InsideError>;
}
