//! The spares of this node: warm browsers for sessions on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use casement_domain::browser::{BrowserEngine, Launch, ReservedMemory, Shape, SpareBrowsers};
use casement_domain::node::OwnState;
use casement_domain::{BrowserId, IdSource};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Job, StartSlots};
use crate::system::System;

/// The idle timeout of a spare's sandbox without a server.
const ABANDONED_AFTER_SECONDS: u32 = 600;

struct SparesOfShape {
    shape: Shape,
    ready: Vec<BrowserId>,
}

/// The spares of this node. The next process ends them and starts new ones.
#[derive(Clone)]
pub(crate) struct Spares {
    spares_by_shape: Arc<Mutex<Vec<SparesOfShape>>>,
    each: usize,
    wanted: Arc<Notify>,
    failing: Arc<AtomicBool>,
}

impl Spares {
    /// Creates an empty set for `each` browsers of each of the most requested shapes: the default shape, which is
    /// headful, and the same shape headless, with the default memory.
    pub(crate) fn new(each: u32, memory: ReservedMemory) -> Self {
        let shape = Shape { memory: Some(memory), ..Shape::default() };
        let shapes = [shape.clone(), Shape { headless: true, ..shape }];
        let spares_by_shape = shapes.into_iter().map(|shape| SparesOfShape { shape, ready: Vec::new() }).collect();
        Self {
            spares_by_shape: Arc::new(Mutex::new(spares_by_shape)),
            each: each as usize,
            wanted: Arc::default(),
            failing: Arc::default(),
        }
    }

    fn spares_by_shape(&self) -> MutexGuard<'_, Vec<SparesOfShape>> {
        self.spares_by_shape.lock()
    }

    fn missing(&self) -> Option<Shape> {
        let spares_by_shape = self.spares_by_shape();
        spares_by_shape.iter().find(|spares| spares.ready.len() < self.each).map(|spares| spares.shape.clone())
    }

    /// Returns the number of ready spares.
    pub(crate) fn ready(&self) -> u32 {
        let ready = self.spares_by_shape().iter().map(|spares| spares.ready.len()).sum::<usize>();
        u32::try_from(ready).unwrap_or(u32::MAX)
    }

    /// Returns true if the last start of a spare failed, so that even a plain browser cannot start.
    pub(crate) fn failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Removes a spare that ended by itself; returns `false` if the browser is not a spare.
    pub(crate) fn lost(&self, id: BrowserId) -> bool {
        let mut found = false;
        for spares in self.spares_by_shape().iter_mut() {
            let before = spares.ready.len();
            spares.ready.retain(|spare| *spare != id);
            found |= spares.ready.len() < before;
        }
        self.wanted.notify_one();
        found
    }

    /// Starts missing spares soon.
    pub(crate) fn refill(&self) {
        if self.missing().is_some() {
            self.wanted.notify_one();
        }
    }

    /// Removes and returns all spares, for the caller to end.
    pub(crate) fn clear(&self) -> Vec<BrowserId> {
        self.spares_by_shape().iter_mut().flat_map(|spares| std::mem::take(&mut spares.ready)).collect()
    }
}

impl SpareBrowsers for Spares {
    fn take(&self, shape: &Shape) -> Option<BrowserId> {
        let taken = self.spares_by_shape().iter_mut().find(|spares| spares.shape == *shape)?.ready.pop();
        self.wanted.notify_one();
        taken
    }

    fn put_back(&self, shape: &Shape, id: BrowserId) {
        if let Some(spares) = self.spares_by_shape().iter_mut().find(|spares| spares.shape == *shape) {
            spares.ready.push(id);
        }
    }
}

/// Starts missing spares, one at a time. It competes with the pools for the start slots.
pub(crate) struct SpareFilling {
    pub(crate) own: OwnState,
    pub(crate) spares: Spares,
    pub(crate) engine: Arc<dyn BrowserEngine>,
    pub(crate) slots: StartSlots,
}

#[async_trait]
impl Job for SpareFilling {
    fn name(&self) -> &'static str {
        "spares"
    }

    /// Also the longest pause after failures.
    fn interval(&self) -> Duration {
        Duration::from_secs(300)
    }

    async fn wait_until_due(&mut self) {
        self.spares.wanted.notified().await;
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        while let Some(shape) = self.spares.missing().filter(|_| self.own.takes_sessions()) {
            let Some(permit) = stop.run_until_cancelled(self.slots.take()).await else { break };
            let id = BrowserId::mint(&System as &dyn IdSource);
            let launch = Launch::new(id, shape, ABANDONED_AFTER_SECONDS);
            let started = self.engine.start(&launch).await;
            drop(permit);
            self.spares.failing.store(started.is_err() && !stop.is_cancelled(), Ordering::Relaxed);
            started.context("a spare browser cannot be started")?;
            debug!(browser = %launch.id, headless = launch.shape.headless, "a spare browser is ready");
            self.spares.put_back(&launch.shape, launch.id);
        }
        Ok(())
    }
}
