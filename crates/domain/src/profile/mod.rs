//! Profiles: the state of a browser, kept from one session to the next.
//!
//! A profile has versions, each a whole archive of a browser's user data. A session that loads one is started from the version
//! that is current then; one that is to save its changes stores another version when it ends, and the last to end wins.

mod kept;
mod model;
mod ports;
mod saving;
mod service;

pub use kept::{ProfileVersions, StoreVersionError};
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
