//! An engine that pretends to run browsers, and the small ports that this example has nothing for.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use casement_domain::browser::{
    BrowserEngine, EngineError, HandOut, Launch, Region, Shape, SpareBrowsers, Started, Viewport,
};
use casement_domain::session::{Connections, EndReason, PoolWake};
use casement_domain::{BrowserId, PoolId, SessionId};

use super::Log;

/// Knows which browsers would be running.
pub(crate) struct Pretended {
    running: Mutex<BTreeSet<BrowserId>>,
    log: Log,
}

impl Pretended {
    pub(crate) fn new(log: Log) -> Self {
        Self { running: Mutex::default(), log }
    }

    pub(crate) fn running(&self) -> usize {
        self.browsers().len()
    }

    fn browsers(&self) -> MutexGuard<'_, BTreeSet<BrowserId>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn needs(&self, id: BrowserId) -> Result<(), EngineError> {
        if self.browsers().contains(&id) { Ok(()) } else { Err(EngineError::NotRunning(id)) }
    }
}

#[async_trait]
impl BrowserEngine for Pretended {
    async fn start(&self, launch: &Launch) -> Result<Started, EngineError> {
        self.browsers().insert(launch.id);
        self.log.say(if launch.shape.headless { "a headless browser started" } else { "a headful browser started" });
        Ok(Started { version: "Pretended/1.0".to_owned(), stages: vec![] })
    }

    async fn hand_out(&self, id: BrowserId, _to: HandOut) -> Result<(), EngineError> {
        self.needs(id)
    }

    async fn set_viewport(&self, id: BrowserId, _viewport: Viewport) -> Result<(), EngineError> {
        self.needs(id)
    }

    async fn restart_with_viewport(&self, id: BrowserId, _viewport: Viewport) -> Result<(), EngineError> {
        self.needs(id)
    }

    async fn is_recording(&self, id: BrowserId) -> Result<bool, EngineError> {
        self.needs(id).map(|()| false)
    }

    async fn screenshot(
        &self,
        id: BrowserId,
        _display: Viewport,
        _region: Option<Region>,
    ) -> Result<Vec<u8>, EngineError> {
        self.needs(id)?;
        Ok(b"\x89PNG\r\n\x1a\n".to_vec())
    }

    fn is_known(&self, id: BrowserId) -> bool {
        self.browsers().contains(&id)
    }

    async fn end(&self, id: BrowserId) -> Result<(), EngineError> {
        if self.browsers().remove(&id) {
            self.log.say("a browser ended");
        }
        Ok(())
    }
}

/// No reserve: every session on demand gets a browser of its own.
pub(crate) struct NoSpares;

impl SpareBrowsers for NoSpares {
    fn take(&self, _shape: &Shape) -> Option<BrowserId> {
        None
    }

    fn put_back(&self, _shape: &Shape, _id: BrowserId) {}
}

/// No connections to close, and no loop to wake.
pub(crate) struct Nobody;

impl Connections for Nobody {
    fn close(&self, _session: SessionId, _reason: EndReason) {}

    fn restarted(&self, _session: SessionId) {}
}

impl PoolWake for Nobody {
    fn wake(&self, _pool: PoolId) {}
}
