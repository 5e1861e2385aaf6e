//! Deletes versions of profiles that are not needed any more, and stored bytes that were never finished.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::blob::BlobStore;
use casement_domain::profile::Profiles;
use tokio_util::sync::CancellationToken;

use super::Job;

/// The age from which an unfinished blob is deleted. No upload pauses longer.
const UNFINISHED_MAX_AGE: time::Duration = time::Duration::hours(1);

pub(crate) struct ProfileCleanup {
    pub(crate) profiles: Profiles,
    pub(crate) blobs: Arc<dyn BlobStore>,
}

#[async_trait]
impl Job for ProfileCleanup {
    fn name(&self) -> &'static str {
        "profile cleanup"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(600)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        self.profiles.clear().await?;
        self.blobs.clear_unfinished(UNFINISHED_MAX_AGE).await?;
        Ok(())
    }
}
