//! Removes the rows of resources that were deleted long ago.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::deleted_resource::DeletedResources;
use tokio_util::sync::CancellationToken;

use super::Job;
use crate::system::System;

/// The maximum number of rows that one statement removes.
const BATCH: u32 = 1000;

/// Removes the rows of deleted resources whose retention is over, with their names.
pub(crate) struct DeletedResourceRetention {
    pub(crate) resources: Arc<dyn DeletedResources>,
    pub(crate) retention: time::Duration,
}

#[async_trait]
impl Job for DeletedResourceRetention {
    fn name(&self) -> &'static str {
        "retention of deleted resources"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        let before = System.now() - self.retention;
        while self.resources.forget(before, BATCH).await? > 0 && !stop.is_cancelled() {}
        Ok(())
    }
}
