//! The use cases of profiles.

use std::sync::Arc;

use bytes::Bytes;

use super::model::EMPTY;
use super::stored::StoreVersionError;
use super::{Profile, ProfileDeleted, ProfileFilter, ProfileRenamed, ProfileStored, ProfileVersion, ProfileVersions};
use crate::access::Scope;
use crate::blob::BlobError;
use crate::clock::{Clock, IdSource};
use crate::error::{InUse, NameTaken, NotFound, SpecificError, UseCaseError};
use crate::field::{Fields, required};
use crate::ids::{ProfileId, ProfileVersionId};
use crate::name::SlugName;
use crate::page::{Listed, Page};
use crate::sealing::{Resealed, Sealer};
use crate::session::IdOrName;
use crate::session_operation::ByteStream;
use crate::store_error::StoreError;

/// The error of a use case of profiles.
pub type ProfileError = UseCaseError<ProfileUnavailable>;

/// The error of a profile whose bytes could not be stored or read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ProfileUnavailable(pub BlobError);

impl SpecificError for ProfileUnavailable {}

impl From<StoreVersionError> for ProfileError {
    fn from(error: StoreVersionError) -> Self {
        match error {
            StoreVersionError::Blob(error) => ProfileUnavailable(error).into(),
            StoreVersionError::Seal(error) => error.into(),
            StoreVersionError::Store(error) => error.into(),
        }
    }
}

/// The use cases of profiles.
#[derive(Clone)]
pub struct Profiles {
    stored: ProfileVersions,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    max: u32,
}

impl Profiles {
    /// The default maximum of profiles of a project.
    pub const DEFAULT_MAX: u32 = 1000;

    /// Creates the use cases; a project may have at most `max` profiles.
    #[must_use]
    pub fn new(stored: ProfileVersions, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>, max: u32) -> Self {
        Self { stored, clock, ids, max }
    }

    /// Creates a profile, which is empty until a session saves its changes.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub async fn create(&self, scope: &Scope, name: Option<&str>) -> Result<Profile, ProfileError> {
        scope.writable()?;
        let mut fields = Fields::new();
        let name = fields.take_optional("name", name, SlugName::parse);
        fields.finish()?;
        let now = self.clock.now();
        let profile = Profile {
            id: ProfileId::mint(self.ids.as_ref()),
            organization: scope.organization(),
            project: Some(scope.project_id()),
            name,
            version: None,
            created_at: now,
            updated_at: now,
            last_used_at: None,
        };
        match (self.stored.rows().create(&profile, self.max).await?, &profile.name) {
            (ProfileStored::Yes, _) => Ok(profile),
            (ProfileStored::NameTaken, Some(name)) => Err(name_taken(name).into()),
            (ProfileStored::NameTaken, None) => unreachable!("a profile without a name takes none"),
            (ProfileStored::LimitExceeded(limit), _) => Err(limit.into()),
            (ProfileStored::ProjectGone, _) => Err(ProfileError::ProjectDeleted),
        }
    }

    /// Returns the profile.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<Profile, ProfileError> {
        let found = self.stored.rows().find(scope, &IdOrName::parse(which)).await?;
        found.ok_or_else(|| NotFound::new("profile", which).into())
    }

    /// Returns the profiles, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(&self, scope: &Scope, filter: &ProfileFilter, page: Page) -> Result<Listed<Profile>, StoreError> {
        self.stored.rows().list(scope, filter, page).await
    }

    /// Returns the profiles with these ids, including deleted ones, for the records of their sessions.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn of_ids(&self, ids: &[ProfileId]) -> Result<Vec<Profile>, StoreError> {
        if ids.is_empty() { Ok(Vec::new()) } else { self.stored.rows().of_ids(ids).await }
    }

    /// Renames a profile.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub async fn rename(&self, scope: &Scope, which: &str, name: Option<&str>) -> Result<Profile, ProfileError> {
        scope.writable()?;
        let name = required("name", name, SlugName::parse)?;
        let profile = self.get(scope, which).await?;
        match self.stored.rows().rename(profile.id, &name, self.clock.now()).await? {
            ProfileRenamed::Yes(profile) => Ok(profile),
            ProfileRenamed::NameTaken => Err(name_taken(&name).into()),
            ProfileRenamed::NotFound => Err(NotFound::new("profile", which).into()),
        }
    }

    /// Deletes an unused profile with all its versions. Running sessions continue with it and save nothing.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub async fn delete(&self, scope: &Scope, which: &str) -> Result<(), ProfileError> {
        let profile = self.get(scope, which).await?;
        match self.stored.rows().delete(profile.id, self.clock.now()).await? {
            ProfileDeleted::Yes => {
                // The periodic cleanup retries failures.
                let _ = self.stored.clear_spent().await;
                Ok(())
            }
            ProfileDeleted::InUse => {
                let usage = "loaded by a browser pool or an auth connection; take it out there first";
                Err(InUse { kind: "profile", which: which.to_owned(), usage }.into())
            }
            ProfileDeleted::NotFound => Err(NotFound::new("profile", which).into()),
        }
    }

    /// Returns the profile and its decrypted archive: a `tar` of the user data directory, compressed by `zstd`.
    /// `version` selects another stored version than the current one, such as one that was replaced unseen.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub async fn download(
        &self,
        scope: &Scope,
        which: &str,
        version: Option<ProfileVersionId>,
    ) -> Result<(Profile, ByteStream), ProfileError> {
        // Looks the profile up again, once, if its version was replaced and deleted during the lookup.
        for _ in 0..2 {
            let profile = self.get(scope, which).await?;
            let Some(wanted) = version.or(profile.version) else { return Ok((profile, Box::pin(Once::new(EMPTY)))) };
            if let Some(content) = self.stored.open(profile.id, wanted).await? {
                return Ok((profile, content));
            }
        }
        Err(NotFound::new("profile", which).into())
    }

    /// Deletes replaced versions, versions of deleted profiles, and bytes that an interrupted server left.
    ///
    /// # Errors
    /// See [`ProfileError`]; the next call does the rest.
    pub async fn clear(&self) -> Result<(), ProfileError> {
        self.stored.clear_spent().await?;
        Ok(self.stored.clear_orphans().await?)
    }

    /// Reseals the keys that are not sealed with the current master key. Keys that cannot be opened are unchanged.
    ///
    /// # Errors
    /// See [`ProfileError`]; the keys that were resealed before stay resealed.
    pub async fn reseal(&self, sealer: &dyn Sealer) -> Result<Resealed, ProfileError> {
        let mut resealed = Resealed::default();
        loop {
            let processed = resealed.processed();
            for version in &self.stored.rows().sealed_with_other_key(sealer.current()?, resealed.batch()).await? {
                if let Some(next) =
                    resealed.reseal_value(sealer, ProfileVersion::place(version.profile, version.id), &version.key)?
                {
                    self.stored.rows().reseal(version.id, &version.key, &next).await?;
                    resealed.done += 1;
                }
            }
            if resealed.processed() == processed {
                return Ok(resealed);
            }
        }
    }
}

fn name_taken(name: &SlugName) -> NameTaken {
    NameTaken::new("a profile", name.as_str())
}

/// A stream of one chunk.
struct Once(Option<Bytes>);

impl Once {
    fn new(bytes: &'static [u8]) -> Self {
        Self(Some(Bytes::from_static(bytes)))
    }
}

impl futures_core::Stream for Once {
    type Item = Result<Bytes, crate::session_operation::OperationError>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.take().map(Ok))
    }
}
