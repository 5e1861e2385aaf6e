//! The videos of ended sessions: storing, reading and deleting.

use std::sync::Arc;

use time::Duration;

use super::{Replay, ReplayRepository};
use crate::blob::{BlobError, BlobStore};
use crate::clock::Clock;
use crate::ids::{ReplayId, SessionId};
use crate::session_operation::{ByteStream, OperationError};
use crate::storage::{DiskSpace, StorageLimit};
use crate::store_error::StoreError;

/// The prefix of the blob keys of videos.
const BLOBS: &str = "replays/";
/// The time for which bytes without a settled recording stay stored, because it may be about to be settled.
const ORPHAN_AGE: Duration = Duration::hours(1);
/// The reason of a recording whose browser ended before the video was stored.
const LOST_REASON: &str = "the node was lost before the video was stored";

/// The limits of stored videos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimits {
    /// The maximum size of the videos of all ended sessions together, in bytes.
    pub most_bytes: u64,
    /// The time for which a video stays stored after the end of its session.
    pub retention: Duration,
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
    /// Creates the archive.
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

    pub(super) fn retention(&self) -> Duration {
        self.limits.retention
    }

    pub(super) fn rows(&self) -> &dyn ReplayRepository {
        &*self.rows
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Returns the reason why a video of this size cannot be stored; `None` if it can.
    pub(super) async fn refuses(&self, size_bytes: u64) -> Result<Option<String>, StoreError> {
        if self.disk.is_low() {
            return Ok(Some(StorageLimit::Disk.message().to_owned()));
        }
        let max = self.limits.most_bytes;
        let room = max.saturating_sub(self.rows.stored_bytes().await?);
        let why = || format!("the recordings of ended sessions take all of the {} MiB that they may", max >> 20);
        Ok((size_bytes > room).then(why))
    }

    /// Returns the blob key of a video.
    #[must_use]
    pub fn blob(session: SessionId, id: ReplayId) -> String {
        format!("{BLOBS}{session}/{id}")
    }

    /// Stores the bytes of a video; its recording is settled afterwards.
    pub(super) async fn put(&self, session: SessionId, id: ReplayId, video: ByteStream) -> Result<(), BlobError> {
        self.blobs.put(&Self::blob(session, id), video).await
    }

    /// Returns a part of a stored video.
    pub(super) async fn read(
        &self,
        session: SessionId,
        replay: &Replay,
        offset: u64,
        length: u64,
    ) -> Result<ByteStream, OperationError> {
        let unreadable = format!("the video of recording {} cannot be read", replay.id);
        match self.blobs.get_part(&Self::blob(session, replay.id), offset, length).await {
            Ok(found) => found.ok_or(OperationError::Failed(unreadable)),
            Err(error) => Err(error.of_reading(&unreadable)),
        }
    }

    /// Deletes expired recordings and orphaned bytes, and settles lost recordings.
    ///
    /// # Errors
    /// Returns the error of the store or of the blob store.
    pub async fn clear(&self) -> Result<(), BlobError> {
        self.rows.reconcile_lost(self.clock.now(), LOST_REASON).await.map_err(store)?;
        self.clear_outdated().await?;
        self.clear_orphans().await
    }

    async fn clear_outdated(&self) -> Result<(), BlobError> {
        loop {
            let outdated = self.rows.outdated(self.clock.now() - self.limits.retention).await.map_err(store)?;
            if outdated.is_empty() {
                return Ok(());
            }
            for (session, id) in outdated {
                // The bytes are deleted first: while the row exists, the deletion is retried.
                self.blobs.delete(&Self::blob(session, id)).await?;
                self.rows.forget(id).await.map_err(store)?;
            }
        }
    }

    /// Deletes bytes whose recording was never settled, because the server stopped or failed in between.
    async fn clear_orphans(&self) -> Result<(), BlobError> {
        let before = self.clock.now() - ORPHAN_AGE;
        let found = self.blobs.list(BLOBS).await?;
        let old: Vec<_> =
            found.into_iter().filter(|(_, since)| *since < before).filter_map(|(key, _)| of_blob(&key)).collect();
        for some in old.chunks(1000) {
            let ids: Vec<_> = some.iter().map(|(_, id)| *id).collect();
            let stored = self.rows.stored(&ids).await.map_err(store)?;
            for (session, id) in some.iter().filter(|(_, id)| !stored.contains(id)) {
                self.blobs.delete(&Self::blob(*session, *id)).await?;
            }
        }
        Ok(())
    }
}

fn store(error: StoreError) -> BlobError {
    BlobError::Store(Box::new(error))
}

/// Parses the blob key of a video.
fn of_blob(key: &str) -> Option<(SessionId, ReplayId)> {
    let (session, id) = key.strip_prefix(BLOBS)?.split_once('/')?;
    Some((session.parse().ok()?, id.parse().ok()?))
}
