//! Keeps the browsers of a WebDriver server alive, and ends the sessions of those that the server has lost.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::session::{SessionEvent, Sessions};
use casement_webdriver::{SessionLost, WebDriverEngine};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Job;

const STORE_BACKOFF: Duration = Duration::from_secs(1);

pub(crate) struct LostBrowsers {
    pub(crate) engine: WebDriverEngine,
    pub(crate) sessions: Sessions,
}

#[async_trait]
impl Job for LostBrowsers {
    fn name(&self) -> &'static str {
        "lost browsers"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        let name = self.engine.name().clone();
        let watching = self.engine.watch(|SessionLost { browser, reason }| {
            warn!(engine = %name, %browser, reason, "a WebDriver server has lost a browser");
            let sessions = self.sessions.clone();
            tokio::spawn(async move {
                while let Err(error) = sessions.browser_lost(browser, SessionEvent::EngineLost).await {
                    warn!(%browser, %error, "the loss of a browser cannot be stored; trying again");
                    tokio::time::sleep(STORE_BACKOFF).await;
                }
            });
        });
        stop.run_until_cancelled(watching).await;
        Ok(())
    }
}
