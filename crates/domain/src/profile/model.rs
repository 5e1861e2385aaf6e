//! Profiles, their versions and the references to them.

use time::OffsetDateTime;

use crate::ids::{OrganizationId, PoolId, ProfileId, ProfileVersionId, ProjectId, SessionId};
use crate::name::SlugName;
use crate::reference::Reference;

/// The maximum size of a version's archive in bytes, compressed.
pub const MAX_PROFILE_BYTES: u64 = 512 << 20;

/// The archive of a profile that was never saved: an empty `tar`, compressed by `zstd`.
pub(super) const EMPTY: &[u8] =
    &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x4d, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0xfb, 0x2b, 0x80, 0x05];

/// A stored profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The identifier.
    pub id: ProfileId,
    /// The organization.
    pub organization: OrganizationId,
    /// The project; `None` for profiles from before projects existed, which unscoped requests see.
    pub project: Option<ProjectId>,
    /// The name, unique in the project without regard to case and accents.
    pub name: Option<SlugName>,
    /// The current version; `None` if nothing was saved yet.
    pub version: Option<ProfileVersionId>,
    /// The time of the creation.
    pub created_at: OffsetDateTime,
    /// The time of the last renaming or saved version.
    pub updated_at: OffsetDateTime,
    /// The time at which a browser was last started with the profile.
    pub last_used_at: Option<OffsetDateTime>,
}

/// The profile that a browser is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedProfile {
    /// The identifier.
    pub id: ProfileId,
    /// The version; `None` if nothing was saved yet. Always `None` in the configuration of a pool: each browser starts
    /// with the version that is current then.
    pub version: Option<ProfileVersionId>,
    /// Whether the browser's user data is saved as a version at the end of the session; `false` after it was saved.
    pub save_changes: bool,
}

/// A stored version: the sealed `tar` of a user data directory, compressed by `zstd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileVersion {
    /// The identifier.
    pub id: ProfileVersionId,
    /// The profile.
    pub profile: ProfileId,
    /// The session that saved it.
    pub session: SessionId,
    /// The version that the session was started from.
    pub based_on: Option<ProfileVersionId>,
    /// The key that seals the bytes of the version, itself sealed in [`ProfileVersion::place`].
    pub key: Vec<u8>,
    /// The time of saving.
    pub created_at: OffsetDateTime,
}

impl ProfileVersion {
    /// The prefix of the blob keys of versions.
    pub(super) const BLOBS: &str = "profiles/";

    /// Returns the blob key of a version.
    #[must_use]
    pub fn blob(profile: ProfileId, id: ProfileVersionId) -> String {
        format!("{}{profile}/{id}", Self::BLOBS)
    }

    /// Parses the blob key of a version.
    pub(super) fn of_blob(key: &str) -> Option<(ProfileId, ProfileVersionId)> {
        let (profile, id) = key.strip_prefix(Self::BLOBS)?.split_once('/')?;
        Some((profile.parse().ok()?, id.parse().ok()?))
    }

    /// Returns the place for which the key of a version's bytes is sealed.
    #[must_use]
    pub fn place(profile: ProfileId, id: ProfileVersionId) -> String {
        format!("profiles/{profile}/versions/{id}")
    }
}

/// The effects of storing a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The replaced version, if the new one is not based on it. The replaced version stays stored then.
    pub unseen: Option<ProfileVersionId>,
    /// The pools that replace their idle browsers because the profile changed.
    pub pools: Vec<PoolId>,
}

/// The profile requested for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileRequest {
    /// The profile.
    pub which: Reference,
    /// Whether the session's user data is saved as a new version.
    pub save_changes: bool,
}
