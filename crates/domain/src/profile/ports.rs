//! What profiles need from outside.

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

/// What became of a profile that was to be stored.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileStored {
    /// It is stored.
    Yes,
    /// Another profile of the project bears the name. Nothing was stored.
    NameTaken,
    /// The project has as many as it may have. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project is gone. Nothing was stored.
    ProjectGone,
}

/// What became of a profile that was to get another name.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileRenamed {
    /// It has it.
    Yes(Profile),
    /// Another profile of the project bears it. Nothing was changed.
    NameTaken,
    /// There is no such profile.
    NotFound,
}

/// What became of a profile that was to be deleted.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileDeleted {
    /// It is gone; its versions belong to nobody now.
    Yes,
    /// A pool or an auth connection names it. Nothing was changed.
    InUse,
    /// There is no such profile.
    NotFound,
}

/// What became of a version that was to be stored.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionStored {
    /// It is the profile's current one, and its session has nothing more to save.
    Yes(Saved),
    /// The profile was deleted, or the session had nothing more to save. Nothing was stored.
    NotWanted,
}

/// Which profiles a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileFilter {
    /// Exactly, without case and accents.
    pub name: Option<String>,
    /// Substring of name or id, without case.
    pub query: Option<String>,
}

/// Where profiles are kept, and their versions without their bytes. In an unscoped request's [`Scope`] the profiles that are in no
/// project count as the default project's; where both have one of a name, the project's own is meant.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProfileRepository: Send + Sync {
    /// Stores a new profile, if its project has fewer than `most`.
    async fn create(&self, profile: &Profile, most: u32) -> Result<ProfileStored, StoreError>;

    /// The profile.
    async fn find(&self, scope: &Scope, which: &IdOrName<ProfileId>) -> Result<Option<Profile>, StoreError>;

    /// The profiles, newest first.
    async fn list(&self, scope: &Scope, filter: &ProfileFilter, page: Page) -> Result<Listed<Profile>, StoreError>;

    /// Gives it another name.
    async fn rename(&self, id: ProfileId, name: &SlugName, at: OffsetDateTime) -> Result<ProfileRenamed, StoreError>;

    /// Deletes it, unless a pool or an auth connection names it.
    async fn delete(&self, id: ProfileId, at: OffsetDateTime) -> Result<ProfileDeleted, StoreError>;

    /// Those of `ids`, deleted or not: sessions keep theirs.
    async fn of_ids(&self, ids: &[ProfileId]) -> Result<Vec<Profile>, StoreError>;

    /// The profile unless it is deleted, whoever's it is.
    async fn living(&self, id: ProfileId) -> Result<Option<Profile>, StoreError>;

    /// Notes that it was used; never backwards.
    async fn used(&self, id: ProfileId, at: OffsetDateTime) -> Result<(), StoreError>;

    /// Makes the version its profile's current one, if the profile lives and the session was to save its changes and has not.
    async fn save(&self, version: &ProfileVersion) -> Result<VersionStored, StoreError>;

    /// The profile's version.
    async fn version(&self, profile: ProfileId, id: ProfileVersionId) -> Result<Option<ProfileVersion>, StoreError>;

    /// Versions that are not to be kept, some hundred at most: of deleted profiles; those that whoever replaced them had started from
    /// and that were replaced before `before`; and of those that were replaced unseen all but the latest `unseen` of each profile.
    async fn spent(
        &self,
        before: OffsetDateTime,
        unseen: u32,
    ) -> Result<Vec<(ProfileId, ProfileVersionId)>, StoreError>;

    /// Forgets a version whose bytes are gone.
    async fn forget(&self, id: ProfileVersionId) -> Result<(), StoreError>;

    /// Those of `ids` that are stored.
    async fn known(&self, ids: &[ProfileVersionId]) -> Result<Vec<ProfileVersionId>, StoreError>;

    /// Up to `most` versions whose key is not sealed under `key`.
    async fn sealed_with_other_key(&self, key: KeyId, most: u32) -> Result<Vec<ProfileVersion>, StoreError>;

    /// Puts `next` in the place of the version's key, unless that was changed meanwhile.
    async fn reseal(&self, id: ProfileVersionId, current: &[u8], next: &[u8]) -> Result<(), StoreError>;

    /// The master keys that keys of versions are sealed under.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// Where a browser that is started gets the user data it is to begin with.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProfileSource: Send + Sync {
    /// The archive of that version in clear: a `tar` of the user data directory, compressed by `zstd`, as
    /// [`ProfileMachine::capture`] gave it. `None` if nothing was saved yet. Asking counts as use.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if the version is not kept any more, [`OperationError::Failed`] if its bytes cannot be read. What is found
    /// to be cut or altered on the way ends the stream with an error, before the browser may be used: a start that meets it fails
    /// with [`EngineError::Profile`](crate::browser::EngineError::Profile).
    async fn archive(&self, profile: &LoadedProfile) -> Result<Option<ByteStream>, OperationError>;
}

/// Takes user data out of browsers, and brings it into those that run. A browser that is started gets it on its own, from
/// [`ProfileSource`], by the `profile` of its [`Shape`](crate::browser::Shape).
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProfileMachine: Send + Sync {
    /// Closes Chromium for good, in order, and waits until it has written everything; then the archive of its user data, without
    /// caches, as it is made: a `tar`, compressed by `zstd`. Its sandbox stays until [`end`](crate::browser::BrowserEngine::end); asked
    /// again until then, it gives what it gave before. That Chromium has ended already is no hindrance.
    ///
    /// # Errors
    /// [`OperationError::TooLarge`] if it is longer than [`MAX_PROFILE_BYTES`](super::MAX_PROFILE_BYTES), now or in the stream; the
    /// engine's failure. A stream that does not end well is not a profile.
    async fn capture(&self, browser: BrowserId) -> Result<ByteStream, OperationError>;

    /// Starts Chromium anew with that user data in place of its own; the pages that were open are gone. The archive is
    /// looked through before anything ends.
    ///
    /// # Errors
    /// [`EngineError::Profile`](crate::browser::EngineError::Profile) for an archive that cannot be used; the browser is as it was
    /// then. After any other failure the browser may be gone.
    async fn load(&self, browser: BrowserId, archive: ByteStream) -> Result<(), OperationError>;
}

/// Who is told how it went with saving profiles, besides whoever reads them.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait ProfileReports: Send + Sync {
    /// A session's changes are stored. If `saved` names a version that the session had not seen, somebody should look.
    fn saved(&self, session: &Session, version: &ProfileVersion, saved: &Saved);

    /// A session's changes cannot be stored for now. It is tried again.
    fn late(&self, session: &Session, profile: ProfileId, why: &str);

    /// A session's changes are lost.
    fn lost(&self, session: &Session, profile: ProfileId, why: &str);
}
