//! Counts the browsers and the waiters of each pool, for `/metrics` and the API.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::pool::PoolRepository;
use casement_domain::session::Sessions;
use tokio_util::sync::CancellationToken;

use super::Job;
use super::pool_gauges::{PoolCounts, PoolGauges};
use crate::system::System;

pub(crate) struct PoolMetrics {
    pub(crate) sessions: Sessions,
    pub(crate) pools: Arc<dyn PoolRepository>,
    pub(crate) figures: PoolGauges,
}

#[async_trait]
impl Job for PoolMetrics {
    fn name(&self) -> &'static str {
        "pool metrics"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        let now = System.now();
        metrics::gauge!("casement_sessions").set(self.sessions.activity().sessions());
        let mut figures = Vec::new();
        for (pool, counts, queue) in self.pools.all_counts().await? {
            // A pool without waiters is counted too, so that it does not keep the numbers of an earlier queue.
            let (waiters, since) = queue.map_or((0, now), |queue| (queue.callers, queue.since));
            let longest_wait_seconds = (now - since).as_seconds_f64();
            let counts = PoolCounts { idle: counts.available, leased: counts.acquired, waiters, longest_wait_seconds };
            figures.push((pool, counts));
        }
        self.figures.store_counts(figures);
        Ok(())
    }
}
