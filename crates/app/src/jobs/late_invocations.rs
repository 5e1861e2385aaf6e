//! Ends invocations whose deadline has passed, and the browsers of canceled invocations.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::invocation::{Invocations, Runs};
use tokio_util::sync::CancellationToken;

use super::{AwaitedCalls, Due, Job};

pub(crate) struct LateInvocations {
    pub(crate) runs: Runs,
    pub(crate) invocations: Invocations,
    pub(crate) awaited: AwaitedCalls,
    pub(crate) due: Due,
}

#[async_trait]
impl Job for LateInvocations {
    fn name(&self) -> &'static str {
        "late invocations"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn wait_until_due(&mut self) {
        self.due.begins().await;
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        if !self.due.is_due() {
            return Ok(());
        }
        let awaited = self.awaited.ids().clone();
        self.runs.tidy(&awaited).await?;
        Ok(self.invocations.clear_canceled().await?)
    }
}
