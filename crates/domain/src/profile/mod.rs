//! Profiles: the state of a browser, stored from one session to the next.
//!
//! A profile has versions, each a complete archive of a browser's user data. A session with a profile starts from the
//! current version. If it saves changes, it stores a new version at its end; of concurrent sessions, the last to end
//! determines the current version.

mod model;
mod ports;
mod saving;
mod service;
mod stored;

pub use model::{LoadedProfile, MAX_PROFILE_BYTES, Profile, ProfileRequest, ProfileVersion, Saved};
#[cfg(feature = "mocks")]
pub use ports::{MockProfileMachine, MockProfileReports, MockProfileRepository, MockProfileSource};
pub use ports::{
    ProfileDeleted, ProfileFilter, ProfileMachine, ProfileRenamed, ProfileReports, ProfileRepository, ProfileSource,
    ProfileStored, VersionStored,
};
pub(crate) use saving::{ExclusiveSave, NotSaved};
pub use saving::{ProfileDeps, SessionProfiles};
pub use service::{ProfileError, ProfileUnavailable, Profiles};
pub use stored::{ProfileVersions, StoreVersionError};
