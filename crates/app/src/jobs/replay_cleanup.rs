//! Deletes replays that are too old or over the storage limit.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::replay::ReplayArchive;
use tokio_util::sync::CancellationToken;

use super::Job;

pub(crate) struct ReplayCleanup {
    pub(crate) archive: ReplayArchive,
}

#[async_trait]
impl Job for ReplayCleanup {
    fn name(&self) -> &'static str {
        "replay cleanup"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(600)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        Ok(self.archive.clear().await?)
    }
}
