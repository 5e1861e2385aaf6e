//! What a profile is, and how one is named.

use time::OffsetDateTime;

use crate::ids::{ProfileId, ProfileVersionId, ProjectId, SessionId};
use crate::name::SlugName;

/// The longest archive of a version, in bytes, compressed as it is.
pub const MAX_PROFILE_BYTES: u64 = 512 << 20;

/// A profile that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Which one.
    pub id: ProfileId,
    /// Whose it is; `None`: of nobody in particular, from the time before projects. Who asks without naming a project sees it.
    pub project: Option<ProjectId>,
    /// Unique in the project, without case and accents.
    pub name: Option<SlugName>,
    /// Its current version; `None` if nothing was ever saved.
    pub version: Option<ProfileVersionId>,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it was last renamed, or a version was saved.
    pub updated_at: OffsetDateTime,
    /// When a browser was last started with it.
    pub last_used_at: Option<OffsetDateTime>,
}

/// What a browser is started with of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedProfile {
    /// Which one.
    pub id: ProfileId,
    /// Which version; `None`: nothing was saved yet, so there is nothing to load. In the wish of a pool always `None`: each of its
    /// browsers is started with the version that is current then.
    pub version: Option<ProfileVersionId>,
    /// Whether what the browser has at its end becomes another version.
    pub save_changes: bool,
}

/// A version that is kept: a `tar` of the user data directory, compressed by `zstd`, sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileVersion {
    /// Which one.
    pub id: ProfileVersionId,
    /// Of which profile.
    pub profile: ProfileId,
    /// Which session saved it.
    pub session: SessionId,
    /// Which version that session was started from.
    pub based_on: Option<ProfileVersionId>,
    /// The key that its bytes are sealed with, itself sealed under the master key.
    pub key: Vec<u8>,
    /// When it was saved.
    pub created_at: OffsetDateTime,
}

/// A profile of the project, as a session or pool names it: by exactly one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileRef {
    /// Its id.
    pub id: Option<String>,
    /// Its name.
    pub name: Option<String>,
}
