//! Ends sessions of this node on WebDriver servers that belong to no browser.

use std::time::Duration;

use async_trait::async_trait;
use casement_webdriver::GridError;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Grids;
use crate::jobs::Job;

/// Looks for sessions that a killed run of this program has started and not stored, and for those whose end did not
/// reach the server.
pub(crate) struct GridSweep {
    pub(crate) grids: Grids,
}

#[async_trait]
impl Job for GridSweep {
    fn name(&self) -> &'static str {
        "sweep of WebDriver servers"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        for engine in self.grids.all() {
            let known = self.grids.browsers(engine.name()).into_iter().collect();
            let Some(swept) = stop.run_until_cancelled(engine.sweep(&known)).await else { break };
            match swept {
                Ok(swept) => {
                    if swept.ended > 0 {
                        info!(engine = %engine.name(), ended = swept.ended, "ended sessions that belong to no browser");
                    }
                    for (session, error) in swept.failed {
                        warn!(engine = %engine.name(), session, %error, "cannot end a session that belongs to no browser");
                    }
                }
                // Such a server is a single chromedriver, whose sessions end with it.
                Err(GridError::Unsupported { .. }) => {}
                Err(error) => warn!(engine = %engine.name(), %error, "cannot list the sessions of a WebDriver server"),
            }
        }
        Ok(())
    }
}
