//! Deletes sessions that ended long ago.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::session::SessionRepository;
use tokio_util::sync::CancellationToken;

use super::Job;
use crate::system::System;

/// The maximum number of sessions that one statement deletes.
const BATCH: u32 = 1000;

/// Deletes the sessions whose retention is over, with their names and tags.
pub(crate) struct SessionRetention {
    pub(crate) sessions: Arc<dyn SessionRepository>,
    pub(crate) retention: time::Duration,
}

#[async_trait]
impl Job for SessionRetention {
    fn name(&self) -> &'static str {
        "session retention"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        let before = System.now() - self.retention;
        while self.sessions.forget(before, BATCH).await? > 0 && !stop.is_cancelled() {}
        Ok(())
    }
}
