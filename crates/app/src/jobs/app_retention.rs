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

/// The maximum number of builds and invocations whose lines one statement deletes.
const LINES_BATCH: u32 = 100;

pub(crate) struct AppRetention {
    pub(crate) builds: Builds,
    pub(crate) builder: Arc<dyn Builder>,
    pub(crate) lines: Arc<dyn LineStore>,
    pub(crate) runs: Runs,
    pub(crate) ages: MaxAges,
}

/// The times for which records of apps are stored.
#[derive(Clone, Copy)]
pub(crate) struct MaxAges {
    /// From the last line of a log.
    pub(crate) lines: time::Duration,
    /// From the end of an invocation.
    pub(crate) invocations: time::Duration,
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
        while self.lines.forget(System.now() - self.ages.lines, LINES_BATCH).await? > 0 {}
        while self.runs.forget(self.ages.invocations).await? > 0 {}
        Ok(())
    }
}
