//! The ports of profiles: repository, source, machine and reports.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{LoadedProfile, Profile, ProfileVersion, Saved};
use crate::access::Scope;
use crate::ids::{BrowserId, ProfileId, ProfileVersionId};
use crate::name::SlugName;
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::session::{IdOrName, Session};
use crate::session_operation::{ByteStream, OperationError};
use crate::store_error::StoreError;

/// The result of storing a profile.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileStored {
    /// The profile is stored.
    Yes,
    /// Another profile of the project has the name. Nothing was stored.
    NameTaken,
    /// The project has the maximum of profiles. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted. Nothing was stored.
    ProjectGone,
}

/// The result of renaming a profile.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileRenamed {
    /// The profile is renamed.
    Yes(Profile),
    /// Another profile of the project has the name. Nothing was changed.
    NameTaken,
    /// The profile does not exist.
    NotFound,
}

/// The result of deleting a profile.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileDeleted {
    /// The profile is deleted; its versions are unused now.
    Yes,
    /// A pool or an auth connection uses the profile. Nothing was changed.
    InUse,
    /// The profile does not exist.
    NotFound,
}

/// The result of storing a version.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionStored {
    /// The version is the current one of the profile, and its session has nothing more to save.
    Yes(Saved),
    /// The profile was deleted, or the session had nothing more to save. Nothing was stored.
    NotWanted,
}

/// The filter of a list of profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileFilter {
    /// The exact name, compared without case and accents.
    pub name: Option<String>,
    /// A substring of the name or the id, compared without case.
    pub query: Option<String>,
}

/// The port to the stored profiles, and to their versions without the bytes. In the [`Scope`] of an unscoped request,
/// profiles without a project count as those of the default project; of two with the same name, the one of the project
/// is returned.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProfileRepository: Send + Sync {
    /// Stores a new profile if its project has fewer than `max`.
    async fn create(&self, profile: &Profile, max: u32) -> Result<ProfileStored, StoreError>;

    /// Returns the profile.
    async fn find(&self, scope: &Scope, which: &IdOrName<ProfileId>) -> Result<Option<Profile>, StoreError>;

    /// Returns the profiles, newest first.
    async fn list(&self, scope: &Scope, filter: &ProfileFilter, page: Page) -> Result<Listed<Profile>, StoreError>;

    /// Renames the profile.
    async fn rename(&self, id: ProfileId, name: &SlugName, at: OffsetDateTime) -> Result<ProfileRenamed, StoreError>;

    /// Deletes the profile, unless a pool or an auth connection uses it.
    async fn delete(&self, id: ProfileId, at: OffsetDateTime) -> Result<ProfileDeleted, StoreError>;

    /// Returns the profiles with these ids, including deleted ones, which sessions still refer to.
    async fn of_ids(&self, ids: &[ProfileId]) -> Result<Vec<Profile>, StoreError>;

    /// Returns the profile in any project, unless it is deleted.
    async fn living(&self, id: ProfileId) -> Result<Option<Profile>, StoreError>;

    /// Stores the time of the profile's last use, unless a later one is stored.
    async fn used(&self, id: ProfileId, at: OffsetDateTime) -> Result<(), StoreError>;

    /// Makes the version the current one of its profile, unless it is deleted or the session has nothing to save.
    async fn save(&self, version: &ProfileVersion) -> Result<VersionStored, StoreError>;

    /// Returns a version of the profile.
    async fn version(&self, profile: ProfileId, id: ProfileVersionId) -> Result<Option<ProfileVersion>, StoreError>;

    /// Returns versions to delete, a few hundred at most: those of deleted profiles; those that their successor was
    /// based on and that were replaced before `before`; and of the versions that were replaced unseen, all but the
    /// latest `unseen` of each profile.
    async fn spent(
        &self,
        before: OffsetDateTime,
        unseen: u32,
    ) -> Result<Vec<(ProfileId, ProfileVersionId)>, StoreError>;

    /// Deletes the row of a version whose bytes are deleted.
    async fn forget(&self, id: ProfileVersionId) -> Result<(), StoreError>;

    /// Returns those of `ids` that are stored.
    async fn known(&self, ids: &[ProfileVersionId]) -> Result<Vec<ProfileVersionId>, StoreError>;

    /// Returns up to `max` versions whose key is not sealed with `key`.
    async fn sealed_with_other_key(&self, key: KeyId, max: u32) -> Result<Vec<ProfileVersion>, StoreError>;

    /// Replaces the key of the version by `next` if it is still `current`.
    async fn reseal(&self, id: ProfileVersionId, current: &[u8], next: &[u8]) -> Result<(), StoreError>;

    /// Returns the master keys that seal the keys of versions.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// The port to the user data for starting browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProfileSource: Send + Sync {
    /// Returns the decrypted archive of the version: a `tar` of the user data directory, compressed by `zstd`, as
    /// [`ProfileMachine::capture`] made it; `None` if nothing was saved yet. Counts as use of the profile.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if the version is no longer stored, [`OperationError::Failed`] if its bytes cannot
    /// be read. A cut or altered archive ends the stream with an error, before the browser may be used: the start then
    /// fails with [`EngineError::Profile`](crate::browser::EngineError::Profile).
    async fn archive(&self, profile: &LoadedProfile) -> Result<Option<ByteStream>, OperationError>;

    /// Notes the use of a profile whose archive is not read again.
    ///
    /// # Errors
    /// [`OperationError`] if it cannot be stored.
    async fn used(&self, profile: &LoadedProfile) -> Result<(), OperationError>;
}

/// The port that captures user data from browsers and loads it into running browsers. A starting browser reads it from
/// [`ProfileSource`] by the `profile` of its [`Shape`](crate::browser::Shape).
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProfileMachine: Send + Sync {
    /// Closes Chromium gracefully, waits until it has written everything, and streams the archive of its user data,
    /// without caches: a `tar`, compressed by `zstd`. Of a browser that supports profiles partially, the archive is that of
    /// `profile` with the part that the browser has. The sandbox stays until
    /// [`end`](crate::browser::BrowserEngine::end); a repeated call until then returns the same archive. Also works if
    /// Chromium has ended already.
    ///
    /// # Errors
    /// [`OperationError::TooLarge`] if the archive is longer than [`MAX_PROFILE_BYTES`](super::MAX_PROFILE_BYTES), also
    /// in the stream; the error of the engine. A stream that ends with an error must be discarded.
    async fn capture(&self, browser: BrowserId, profile: LoadedProfile) -> Result<ByteStream, OperationError>;

    /// Restarts Chromium with the given user data in place of its own; open pages are lost. The archive is checked
    /// before Chromium is ended.
    ///
    /// # Errors
    /// [`EngineError::Profile`](crate::browser::EngineError::Profile) for an archive that cannot be used; the browser
    /// is unchanged then. After any other error the browser may have ended.
    async fn load(&self, browser: BrowserId, archive: ByteStream) -> Result<(), OperationError>;
}

/// The port that receives the results of saving profiles.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait ProfileReports: Send + Sync {
    /// Reports that a session's changes are stored. If `saved` has an unseen version, a person should check it.
    fn saved(&self, session: &Session, version: &ProfileVersion, saved: &Saved);

    /// Reports that a session's changes could not be stored and that saving is retried.
    fn late(&self, session: &Session, profile: ProfileId, why: &str);

    /// Reports that a session's changes are lost.
    fn lost(&self, session: &Session, profile: ProfileId, why: &str);
}
