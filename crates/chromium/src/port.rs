//! The implementation of the domain's port.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::{ErrorBody, ErrorCode};
use casement_domain::browser::{BrowserEngine, EngineError, HandOut, Launch, Location, Region, Started, Viewport};
use casement_domain::ids::BrowserId;
use tracing::Instrument as _;

use crate::engine::Engine;
use crate::fault::shorten;
use crate::start::viewport as to_agent_viewport;

/// The timeout of the liveness probe of a warm browser's page.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of the agent's response to the probe. It is short because another browser is better for the caller than
/// a long wait.
const PROBE_RESPONSE_TIMEOUT: Duration = Duration::from_millis(1500);

#[async_trait]
impl BrowserEngine for Engine {
    async fn start(&self, launch: &Launch) -> Result<Started, EngineError> {
        self.start_browser(launch.clone(), None).await
    }

    async fn hand_out(&self, id: BrowserId, to: HandOut) -> Result<(), EngineError> {
        let running = self.running(id)?;
        let url = to.start_url.map(|url| url.as_str().to_owned());
        let idle_end = Some(to.abandoned_after_seconds.into());
        let answer =
            tokio::time::timeout(PROBE_RESPONSE_TIMEOUT, running.agent.handout(url, idle_end, Some(PROBE_TIMEOUT)))
                .instrument(tracing::debug_span!("hand out", browser = %id))
                .await;
        let answer = answer.map_err(|_| EngineError::Timeout { seconds: 2 })?;
        answer.map_err(|error| running.failed(&error))
    }

    async fn set_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError> {
        let running = self.running(id)?;
        let _turn = running.changing.lock().await;
        running.agent.viewport(to_agent_viewport(viewport)).await.map_err(|error| match error {
            ClientError::Refused(ErrorBody { code: ErrorCode::OutOfRange, message, .. }) => {
                EngineError::OutOfRange(shorten(message))
            }
            other => running.failed(&other),
        })
    }

    async fn restart_with_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError> {
        // A remote browser takes any size while it runs.
        match self.running(id)?.remote {
            Some(_) => self.set_viewport(id, viewport).await,
            None => self.restart_with_viewport_limit(id, viewport).await,
        }
    }

    async fn has_location(&self, id: BrowserId, location: Location) -> Result<bool, EngineError> {
        let running = self.running(id)?;
        self.is_at(&running, location).await
    }

    async fn restart_with_location(&self, id: BrowserId, location: Location) -> Result<(), EngineError> {
        self.relocate(id, location).await
    }

    async fn is_recording(&self, id: BrowserId) -> Result<bool, EngineError> {
        self.is_recording_now(id).await
    }

    async fn screenshot(
        &self,
        id: BrowserId,
        display: Viewport,
        region: Option<Region>,
    ) -> Result<Vec<u8>, EngineError> {
        let running = self.running(id)?;
        let (width, height) = region.map_or((display.width, display.height), |region| (region.width, region.height));
        let region =
            region.map(|Region { x, y, width, height }| casement_agent_protocol::Region { x, y, width, height });
        let png = running.agent.screenshot(region, (width, height)).await.map_err(|error| running.failed(&error))?;
        Ok(png.into())
    }

    fn is_known(&self, id: BrowserId) -> bool {
        let slots = self.0.slots();
        self.0.detached.load(Ordering::Relaxed) || slots.contains_key(&id)
    }

    async fn end(&self, id: BrowserId) -> Result<(), EngineError> {
        self.end_browser(id).await
    }
}
