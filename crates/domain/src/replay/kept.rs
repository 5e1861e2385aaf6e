//! Films that outlive their session: kept, read, forgotten.

use std::sync::Arc;

use time::Duration;

use super::{Replay, ReplayRepository};
use crate::blob::{BlobError, BlobStore};
use crate::clock::Clock;
use crate::ids::{ReplayId, SessionId};
use crate::session_operation::{ByteStream, OperationError};
use crate::storage::{DiskSpace, StorageLimit};
use crate::store_error::StoreError;

/// What the keys of all films begin with.
const BLOBS: &str = "replays/";
/// How long bytes without a settled recording are left alone: it may be about to be settled.
const ORPHANED: Duration = Duration::hours(1);
/// Why a recording is lost that nobody can ask for any more.
const LOST: &str = "the session's machine was gone before the film was kept";

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimits {
    /// Of all ended sessions together, in bytes.
    pub most_bytes: u64,
    /// After the end of the session.
    pub kept_for: Duration,
}

/// The recordings of sessions that have ended.
#[derive(Clone)]
pub struct ReplayArchive {
    rows: Arc<dyn ReplayRepository>,
    blobs: Arc<dyn BlobStore>,
    clock: Arc<dyn Clock>,
    limits: ReplayLimits,
    disk: Arc<dyn DiskSpace>,
}

impl ReplayArchive {
    /// On these ports.
    #[must_use]
    pub fn new(
        rows: Arc<dyn ReplayRepository>,
        blobs: Arc<dyn BlobStore>,
        clock: Arc<dyn Clock>,
        limits: ReplayLimits,
        disk: Arc<dyn DiskSpace>,
    ) -> Self {
        Self { rows, blobs, clock, limits, disk }
    }

    pub(super) fn rows(&self) -> &dyn ReplayRepository {
        &*self.rows
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Why a film of so many bytes is not kept, if it is not.
    pub(super) async fn refuses(&self, size_bytes: u64) -> Result<Option<String>, StoreError> {
        if self.disk.is_low() {
            return Ok(Some(StorageLimit::Disk.message().to_owned()));
        }
        let most = self.limits.most_bytes;
        let room = most.saturating_sub(self.rows.kept_bytes().await?);
        let why = || format!("the recordings of ended sessions take all of the {} MiB that they may", most >> 20);
        Ok((size_bytes > room).then(why))
    }

    /// Keeps the bytes of a film; it is yet to be settled.
    pub(super) async fn put(&self, session: SessionId, id: ReplayId, video: ByteStream) -> Result<(), BlobError> {
        self.blobs.put(&blob(session, id), video).await
    }

    /// A part of a film that is kept.
    pub(super) async fn read(
        &self,
        session: SessionId,
        replay: &Replay,
        offset: u64,
        length: u64,
    ) -> Result<ByteStream, OperationError> {
        let unreadable = || OperationError::Failed(format!("the film of recording {} cannot be read", replay.id));
        match self.blobs.get_part(&blob(session, replay.id), offset, length).await {
            Ok(found) => found.ok_or_else(unreadable),
            Err(BlobError::Content(error)) => Err(error),
            Err(BlobError::Store(_)) => Err(unreadable()),
        }
    }

    /// Forgets recordings whose time is over and bytes that belong to none, and tells of those that are lost.
    ///
    /// # Errors
    /// The failure of the store, or of the place of the bytes.
    pub async fn clear(&self) -> Result<(), BlobError> {
        self.rows.reconcile_lost(self.clock.now(), LOST).await.map_err(store)?;
        self.clear_outdated().await?;
        self.clear_orphans().await
    }

    async fn clear_outdated(&self) -> Result<(), BlobError> {
        loop {
            let outdated = self.rows.outdated(self.clock.now() - self.limits.kept_for).await.map_err(store)?;
            if outdated.is_empty() {
                return Ok(());
            }
            for (session, id) in outdated {
                // The bytes first: as long as there is a row, somebody comes back for them.
                self.blobs.delete(&blob(session, id)).await?;
                self.rows.forget(id).await.map_err(store)?;
            }
        }
    }

    /// A server ended between keeping the bytes and settling, or could not settle.
    async fn clear_orphans(&self) -> Result<(), BlobError> {
        let before = self.clock.now() - ORPHANED;
        let found = self.blobs.list(BLOBS).await?;
        let old: Vec<_> =
            found.into_iter().filter(|(_, since)| *since < before).filter_map(|(key, _)| of_blob(&key)).collect();
        for some in old.chunks(1000) {
            let ids: Vec<_> = some.iter().map(|(_, id)| *id).collect();
            let kept = self.rows.kept(&ids).await.map_err(store)?;
            for (session, id) in some.iter().filter(|(_, id)| !kept.contains(id)) {
                self.blobs.delete(&blob(*session, *id)).await?;
            }
        }
        Ok(())
    }
}

fn store(error: StoreError) -> BlobError {
    BlobError::Store(Box::new(error))
}

/// Under which key a film lies.
fn blob(session: SessionId, id: ReplayId) -> String {
    format!("{BLOBS}{session}/{id}")
}

/// Which film lies under that key.
fn of_blob(key: &str) -> Option<(SessionId, ReplayId)> {
    let (session, id) = key.strip_prefix(BLOBS)?.split_once('/')?;
    Some((session.parse().ok()?, id.parse().ok()?))
}
