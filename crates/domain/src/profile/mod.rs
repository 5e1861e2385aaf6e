//! Profiles: the state of a browser, kept from one session to the next.
//!
//! A profile has versions, each a whole archive of a browser's user data. A session that loads one is started from the version
//! that is current then; one that is to save its changes stores another version when it ends, and the last to end wins.

mod model;
mod ports;

pub use model::{LoadedProfile, MAX_PROFILE_BYTES, Profile, ProfileRef, ProfileVersion};
#[cfg(feature = "mocks")]
pub use ports::{MockProfileMachine, MockProfileSource};
pub use ports::{ProfileMachine, ProfileSource};
