//! Handles the events of this node's browsers. If a browser ends by itself, its session ends, or the browser is removed
//! from its pool or from the spares.

use std::time::Duration;

use async_trait::async_trait;
use casement_chromium::{BrowserExitReason, Engine, EngineEvent};
use casement_domain::session::{SessionEvent, Sessions};
use casement_domain::{BrowserId, Clock as _, telemetry};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Job, Spares};
use crate::system::System;

const STORE_BACKOFF: Duration = Duration::from_secs(1);

pub(crate) struct BrowserEvents {
    pub(crate) engine: Engine,
    pub(crate) events: mpsc::UnboundedReceiver<EngineEvent>,
    pub(crate) sessions: Sessions,
    pub(crate) spares: Spares,
}

#[async_trait]
impl Job for BrowserEvents {
    fn name(&self) -> &'static str {
        "browser events"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        while let Some(Some(EngineEvent { browser, reason })) = stop.run_until_cancelled(self.events.recv()).await {
            if self.spares.lost(browser) {
                warn!(%browser, reason = reason.as_str(), "a spare browser ended by itself");
                self.sessions.clean_up(browser).await;
            } else {
                tokio::spawn(end_session(self.engine.clone(), self.sessions.clone(), browser, reason));
            }
        }
        // The engine sends no more events, so another run would do nothing.
        stop.cancelled().await;
        Ok(())
    }
}

async fn end_session(engine: Engine, sessions: Sessions, browser: BrowserId, reason: BrowserExitReason) {
    let event = match reason {
        BrowserExitReason::Crashed => SessionEvent::Crash,
        BrowserExitReason::Oom => SessionEvent::OutOfMemory,
        BrowserExitReason::Closed => SessionEvent::BrowserClosed,
        BrowserExitReason::Hung => SessionEvent::BrowserHung,
    };
    if reason == BrowserExitReason::Oom {
        record_oom_kill(&engine, &sessions, browser).await;
    }
    while let Err(error) = sessions.browser_lost(browser, event).await {
        warn!(%browser, %error, "the end of a browser cannot be stored; trying again");
        tokio::time::sleep(STORE_BACKOFF).await;
    }
}

/// Records in the session's telemetry the process that the kernel killed. If the agent watches the memory, the agent
/// records it.
async fn record_oom_kill(engine: &Engine, sessions: &Sessions, browser: BrowserId) {
    let Some(killed) = engine.oom_kill(browser).await else { return };
    let event = telemetry::Event::oom_kill(System.now(), killed.pid, &killed.process, killed.resident_kib);
    if let Err(error) = sessions.note(browser, event).await {
        warn!(%browser, %error, "an out-of-memory kill cannot be recorded");
    }
}
