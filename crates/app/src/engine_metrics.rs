//! Metrics of the browser engine: duration and failures of each operation.

use std::future::Future;
use std::time::Instant;

use async_trait::async_trait;
use casement_domain::BrowserId;
use casement_domain::browser::{BrowserEngine, EngineError, HandOut, Launch, Location, Region, Started, Viewport};

/// Measures the operations of an engine.
pub(crate) struct MeteredEngine<E>(pub(crate) E);

async fn measured<T>(
    operation: &'static str,
    work: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    let began = Instant::now();
    let done = work.await;
    let outcome = if done.is_ok() { "ok" } else { "failed" };
    metrics::histogram!("casement_browser_operation_seconds", "operation" => operation, "outcome" => outcome)
        .record(began.elapsed());
    done
}

#[async_trait]
impl<E: BrowserEngine> BrowserEngine for MeteredEngine<E> {
    async fn start(&self, launch: &Launch) -> Result<Started, EngineError> {
        let started = measured("start", self.0.start(launch)).await?;
        for (stage, milliseconds) in &started.stages {
            metrics::histogram!("casement_browser_start_seconds", "stage" => stage.clone())
                .record(f64::from(*milliseconds) / 1000.0);
        }
        Ok(started)
    }

    async fn hand_out(&self, id: BrowserId, to: HandOut) -> Result<(), EngineError> {
        measured("hand_out", self.0.hand_out(id, to)).await
    }

    async fn set_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError> {
        measured("set_viewport", self.0.set_viewport(id, viewport)).await
    }

    async fn restart_with_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError> {
        measured("restart", self.0.restart_with_viewport(id, viewport)).await
    }

    async fn has_location(&self, id: BrowserId, location: Location) -> Result<bool, EngineError> {
        self.0.has_location(id, location).await
    }

    async fn restart_with_location(&self, id: BrowserId, location: Location) -> Result<(), EngineError> {
        measured("restart", self.0.restart_with_location(id, location)).await
    }

    async fn is_recording(&self, id: BrowserId) -> Result<bool, EngineError> {
        measured("is_recording", self.0.is_recording(id)).await
    }

    async fn screenshot(
        &self,
        id: BrowserId,
        display: Viewport,
        region: Option<Region>,
    ) -> Result<Vec<u8>, EngineError> {
        measured("screenshot", self.0.screenshot(id, display, region)).await
    }

    fn is_known(&self, id: BrowserId) -> bool {
        self.0.is_known(id)
    }

    async fn end(&self, id: BrowserId) -> Result<(), EngineError> {
        measured("end", self.0.end(id)).await
    }
}
