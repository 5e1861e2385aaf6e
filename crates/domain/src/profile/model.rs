//! What a profile is, and how one is named.

use time::OffsetDateTime;

use crate::field::{FieldCode, Fields, InvalidValue};
use crate::ids::{OrganizationId, PoolId, ProfileId, ProfileVersionId, ProjectId, SessionId};
use crate::name::SlugName;

/// The longest archive of a version, in bytes, compressed as it is.
pub const MAX_PROFILE_BYTES: u64 = 512 << 20;

/// What is downloaded of a profile that was never saved: a `tar` of nothing, compressed by `zstd`.
pub(super) const EMPTY: &[u8] =
    &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x4d, 0x00, 0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0xfb, 0x2b, 0x80, 0x05];

/// A profile that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Which one.
    pub id: ProfileId,
    /// Whose it is.
    pub organization: OrganizationId,
    /// In which project; `None`: from the time before projects. Who asks without naming a project sees it.
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
    /// Whether what the browser has at its end becomes another version. Not any more once it has.
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
    /// The key that its bytes are sealed with, itself sealed in [`ProfileVersion::place`].
    pub key: Vec<u8>,
    /// When it was saved.
    pub created_at: OffsetDateTime,
}

impl ProfileVersion {
    /// What the keys of the bytes of all versions begin with.
    pub(super) const BLOBS: &str = "profiles/";

    /// Under which key the bytes of a version lie.
    #[must_use]
    pub fn blob(profile: ProfileId, id: ProfileVersionId) -> String {
        format!("{}{profile}/{id}", Self::BLOBS)
    }

    /// Which version lies under that key.
    pub(super) fn of_blob(key: &str) -> Option<(ProfileId, ProfileVersionId)> {
        let (profile, id) = key.strip_prefix(Self::BLOBS)?.split_once('/')?;
        Some((profile.parse().ok()?, id.parse().ok()?))
    }

    /// Where the key of a version's bytes is sealed.
    #[must_use]
    pub fn place(profile: ProfileId, id: ProfileVersionId) -> String {
        format!("profiles/{profile}/versions/{id}")
    }
}

/// What came of storing a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The version that it replaced without having started from it; it is kept.
    pub unseen: Option<ProfileVersionId>,
    /// The pools whose idle browsers are to follow.
    pub pools: Vec<PoolId>,
}

/// A profile of the project, as a session or pool names it: by exactly one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileRef {
    /// Its id.
    pub id: Option<String>,
    /// Its name.
    pub name: Option<String>,
}

impl ProfileRef {
    /// Refuses, in `fields`, what no profile can be named like.
    pub(crate) fn check(&self, fields: &mut Fields) {
        let bad = match (&self.id, &self.name) {
            (Some(_), None) | (None, Some(_)) => return,
            (None, None) => InvalidValue::new(FieldCode::Required, "needs an id or a name"),
            (Some(_), Some(_)) => InvalidValue::new(FieldCode::MutuallyExclusive, "takes an id or a name, not both"),
        };
        fields.refuse("profile", bad);
    }
}

/// A profile as a session asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileRequest {
    /// Which one.
    pub which: ProfileRef,
    /// Whether what the session leaves becomes another version.
    pub save_changes: bool,
}
