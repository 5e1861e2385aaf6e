//! Deletes unused archives and built artifacts of deployments, old log lines and old invocations.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::deployment::{Builder, Builds, LineStore};
use casement_domain::invocation::Runs;
use tokio_util::sync::CancellationToken;

use super::Job;
use crate::system::System;

const LINES_MAX_AGE: time::Duration = time::Duration::days(30);
/// The maximum number of builds and invocations whose lines one statement deletes.
const LINES_BATCH: u32 = 100;

pub(crate) struct AppRetention {
    pub(crate) builds: Builds,
    pub(crate) builder: Arc<dyn Builder>,
    pub(crate) lines: Arc<dyn LineStore>,
    pub(crate) runs: Runs,
}

#[async_trait]
impl Job for AppRetention {
    fn name(&self) -> &'static str {
        "app retention"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        self.builds.clear().await?;
        for artifact in self.builds.spent_artifacts(self.builder.stored().await).await? {
            self.builder.discard(&artifact).await;
        }
        while self.lines.forget(System.now() - LINES_MAX_AGE, LINES_BATCH).await? > 0 {}
        while self.runs.forget().await? > 0 {}
        Ok(())
    }
}
