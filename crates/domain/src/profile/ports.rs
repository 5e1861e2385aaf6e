//! What profiles need from outside.

use async_trait::async_trait;

use super::LoadedProfile;
use crate::ids::BrowserId;
use crate::inside::{ByteStream, InsideError};

/// Where a browser that is started gets the user data it is to begin with.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProfileSource: Send + Sync {
    /// The archive of that version in clear: a `tar` of the user data directory, compressed by `zstd`, as
    /// [`ProfileMachine::capture`] gave it. `None` if nothing was saved yet. Asking counts as use.
    ///
    /// # Errors
    /// [`InsideError::Missing`] if the version is not kept any more, [`InsideError::Failed`] if its bytes cannot be read. What is found
    /// to be cut or altered on the way ends the stream with an error, before the browser may be used: a start that meets it fails
    /// with [`EngineError::Profile`](crate::browser::EngineError::Profile).
    async fn archive(&self, profile: &LoadedProfile) -> Result<Option<ByteStream>, InsideError>;
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
    /// [`InsideError::TooLarge`] if it is longer than [`MAX_PROFILE_BYTES`](super::MAX_PROFILE_BYTES), now or in the stream; the
    /// engine's failure. A stream that does not end well is not a profile.
    async fn capture(&self, browser: BrowserId) -> Result<ByteStream, InsideError>;

    /// Starts Chromium anew with that user data in place of its own; the pages that were open are gone. The archive is
    /// looked through before anything ends.
    ///
    /// # Errors
    /// [`EngineError::Profile`](crate::browser::EngineError::Profile) for an archive that cannot be used; the browser is as it was
    /// then. After any other failure the browser may be gone.
    async fn load(&self, browser: BrowserId, archive: ByteStream) -> Result<(), InsideError>;
}
