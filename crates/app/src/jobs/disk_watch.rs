//! Measures the free space of the data directory's disks and, less often, the stored bytes of this node.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::storage::StorageUsage;
use metrics::gauge;
use tokio_util::sync::CancellationToken;

use super::Job;
use crate::disk::DiskWatch;

/// The number of runs per count of the stored bytes, because a count costs a query.
const RUNS_PER_COUNT: u32 = 15;

pub(crate) struct DiskJob {
    disk: DiskWatch,
    usage: Arc<dyn StorageUsage>,
    runs: u32,
}

impl DiskJob {
    pub(crate) fn new(disk: DiskWatch, usage: Arc<dyn StorageUsage>) -> Self {
        Self { disk, usage, runs: 0 }
    }
}

#[async_trait]
impl Job for DiskJob {
    fn name(&self) -> &'static str {
        "disk watch"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        self.disk.measure();
        let counts = self.runs.is_multiple_of(RUNS_PER_COUNT);
        self.runs = self.runs.wrapping_add(1);
        if counts {
            gauge!("casement_stored_bytes").set(self.usage.of_node().await? as f64);
        }
        Ok(())
    }
}
