//! Ends sessions whose idle timeout is over.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::session::Sessions;
use tokio_util::sync::CancellationToken;

use super::Job;

pub(crate) struct IdleSessions {
    pub(crate) sessions: Sessions,
}

#[async_trait]
impl Job for IdleSessions {
    fn name(&self) -> &'static str {
        "idle sessions"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        Ok(self.sessions.sweep_idle().await?)
    }
}
