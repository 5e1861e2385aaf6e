//! The stored bytes of profile versions, sealed when written and opened when read.

use std::sync::Arc;

use async_trait::async_trait;
use time::Duration;

use super::{LoadedProfile, ProfileRepository, ProfileSource, ProfileVersion};
use crate::blob::{BlobError, BlobStore};
use crate::clock::Clock;
use crate::ids::{ProfileId, ProfileVersionId, SessionId};
use crate::sealing::{SealError, StreamSealer};
use crate::session_operation::{ByteStream, OperationError};
use crate::store_error::StoreError;

/// The error of storing, reading or deleting the bytes of a version.
#[derive(Debug, thiserror::Error)]
pub enum StoreVersionError {
    /// The blob store or the content failed.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The bytes cannot be sealed or opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The time for which bytes without a row stay stored, because the row may be about to be stored.
const ORPHANED: Duration = Duration::hours(1);
/// The time for which a version stays stored after its successor was saved, because a browser may be starting with it.
const GRACE: Duration = Duration::minutes(10);
/// The number of versions per profile that stay stored after they were replaced unseen.
const UNSEEN: u32 = 5;

/// The stored profiles and the bytes of their versions.
#[derive(Clone)]
pub struct ProfileVersions {
    rows: Arc<dyn ProfileRepository>,
    blobs: Arc<dyn BlobStore>,
    sealer: Arc<dyn StreamSealer>,
    clock: Arc<dyn Clock>,
}

impl ProfileVersions {
    /// Creates the store of profiles.
    #[must_use]
    pub fn new(
        rows: Arc<dyn ProfileRepository>,
        blobs: Arc<dyn BlobStore>,
        sealer: Arc<dyn StreamSealer>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { rows, blobs, sealer, clock }
    }

    pub(super) fn rows(&self) -> &dyn ProfileRepository {
        &*self.rows
    }

    /// Seals and stores the bytes of a version; its row is stored afterwards.
    pub(super) async fn put(
        &self,
        id: ProfileVersionId,
        (session, profile): (SessionId, LoadedProfile),
        content: ByteStream,
    ) -> Result<ProfileVersion, StoreVersionError> {
        let (key, sealed) = self.sealer.seal(&ProfileVersion::place(profile.id, id), content)?;
        self.blobs.put(&ProfileVersion::blob(profile.id, id), sealed).await?;
        let (based_on, created_at) = (profile.version, self.clock.now());
        Ok(ProfileVersion { id, profile: profile.id, session, based_on, key, created_at })
    }

    /// Returns the decrypted archive; `None` if it was deleted.
    pub(super) async fn open(
        &self,
        profile: ProfileId,
        id: ProfileVersionId,
    ) -> Result<Option<ByteStream>, StoreVersionError> {
        let Some(version) = self.rows.version(profile, id).await? else { return Ok(None) };
        let Some(sealed) = self.blobs.get(&ProfileVersion::blob(profile, id)).await? else { return Ok(None) };
        Ok(Some(self.sealer.open(&ProfileVersion::place(profile, id), &version.key, sealed)?))
    }

    /// Deletes the bytes of a version that is unused or has no row.
    pub(super) async fn drop_bytes(&self, profile: ProfileId, id: ProfileVersionId) -> Result<(), BlobError> {
        self.blobs.delete(&ProfileVersion::blob(profile, id)).await
    }

    /// Deletes versions that are no longer needed.
    pub(super) async fn clear_spent(&self) -> Result<(), StoreVersionError> {
        loop {
            let spent = self.rows.spent(self.clock.now() - GRACE, UNSEEN).await?;
            if spent.is_empty() {
                return Ok(());
            }
            for (profile, id) in spent {
                // Deletes the bytes first, so that the row remains for a retry until they are gone.
                self.drop_bytes(profile, id).await?;
                self.rows.forget(id).await?;
            }
        }
    }

    /// Deletes bytes without a row, left by a server that stopped between the two writes.
    pub(super) async fn clear_orphans(&self) -> Result<(), StoreVersionError> {
        let before = self.clock.now() - ORPHANED;
        let found = self.blobs.list(ProfileVersion::BLOBS).await?;
        let old: Vec<_> = found
            .iter()
            .filter(|(_, since)| *since < before)
            .filter_map(|(key, _)| ProfileVersion::of_blob(key))
            .collect();
        for some in old.chunks(1000) {
            let ids: Vec<_> = some.iter().map(|(_, id)| *id).collect();
            let known = self.rows.known(&ids).await?;
            for (profile, id) in some.iter().filter(|(_, id)| !known.contains(id)) {
                self.drop_bytes(*profile, *id).await?;
            }
        }
        Ok(())
    }
}

/// Returns the error of a profile that cannot be loaded, with a text for the caller.
pub(super) fn unreadable(error: &StoreVersionError) -> OperationError {
    OperationError::Failed(match error {
        StoreVersionError::Blob(BlobError::Unavailable(why)) => {
            return OperationError::Unavailable(format!("the profile cannot be read: {why}"));
        }
        StoreVersionError::Seal(error) => format!("the profile cannot be opened: {error}"),
        StoreVersionError::Blob(_) | StoreVersionError::Store(_) => "the profile cannot be read".to_owned(),
    })
}

pub(super) fn not_stored() -> OperationError {
    OperationError::Missing("the profile's saved state is no longer stored".to_owned())
}

#[async_trait]
impl ProfileSource for ProfileVersions {
    async fn archive(&self, profile: &LoadedProfile) -> Result<Option<ByteStream>, OperationError> {
        self.used(profile).await?;
        let Some(version) = profile.version else { return Ok(None) };
        let opened = self.open(profile.id, version).await.map_err(|error| unreadable(&error))?;
        opened.map(Some).ok_or_else(not_stored)
    }

    async fn used(&self, profile: &LoadedProfile) -> Result<(), OperationError> {
        let noted = self.rows.used(profile.id, self.clock.now()).await;
        noted.map_err(|error| unreadable(&error.into()))
    }
}
