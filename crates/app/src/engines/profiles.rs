//! Profiles of browsers: whole ones in sandboxes; cookies and local storage in browsers of WebDriver servers.

use async_trait::async_trait;
use casement_domain::BrowserId;
use casement_domain::profile::{LoadedProfile, ProfileMachine};
use casement_domain::session_operation::{ByteStream, OperationError};

use super::BrowserEngines;

/// The profiles of all browsers of this node.
pub(crate) struct EngineProfiles(pub(crate) BrowserEngines);

#[async_trait]
impl ProfileMachine for EngineProfiles {
    async fn capture(&self, browser: BrowserId, profile: LoadedProfile) -> Result<ByteStream, OperationError> {
        let engines = &self.0;
        if engines.grids.session(browser).is_none() {
            return engines.sandboxes.capture(browser, profile).await;
        }
        let loaded = engines.states.load(profile).await?;
        // Their storage is read also if the session has no page of them any more.
        let origins = loaded.state.origins.iter().map(|stored| stored.origin.clone()).collect();
        let reading = engines.sandboxes.read_state(browser, origins).await?;
        engines.states.save(profile, &reading.state).await
    }

    async fn load(&self, browser: BrowserId, archive: ByteStream) -> Result<(), OperationError> {
        let engines = &self.0;
        if engines.grids.session(browser).is_none() {
            return engines.sandboxes.load(browser, archive).await;
        }
        let reading = engines.states.read_archive(archive).await?;
        engines.sandboxes.write_state(browser, &reading.state).await.map(drop)
    }
}
