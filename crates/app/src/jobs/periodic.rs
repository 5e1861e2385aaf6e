//! Jobs that need nothing but their interval.

use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::Job;

/// Work that is repeated at an interval. `parts` is what it uses, cloned for each run.
pub(crate) struct Periodic<P, W> {
    name: &'static str,
    interval: Duration,
    parts: P,
    work: W,
}

impl<P, W, F> Periodic<P, W>
where
    W: Fn(P, CancellationToken) -> F,
{
    pub(crate) const fn new(name: &'static str, seconds: u64, parts: P, work: W) -> Self {
        Self { name, interval: Duration::from_secs(seconds), parts, work }
    }
}

#[async_trait]
impl<P, W, F> Job for Periodic<P, W>
where
    P: Clone + Send + Sync + 'static,
    W: Fn(P, CancellationToken) -> F + Send + Sync + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        (self.work)(self.parts.clone(), stop.clone()).await
    }
}
