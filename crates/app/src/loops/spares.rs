//! The node's own reserve of warm browsers, for creates on demand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use casement_domain::browser::{BrowserEngine, Launch, Shape, SpareBrowsers};
use casement_domain::{BrowserId, IdSource};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::StartSlots;
use crate::system::System;

/// How long a spare's sandbox waits for a word from a server.
const ABANDONED_AFTER_SECONDS: u32 = 600;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

struct Shelf {
    shape: Shape,
    ready: Vec<BrowserId>,
}

/// The reserve. Lost with the process: the next start ends what it finds of it and makes a new one.
#[derive(Clone)]
pub(crate) struct Spares {
    shelves: Arc<Mutex<Vec<Shelf>>>,
    each: usize,
    wanted: Arc<Notify>,
    failing: Arc<AtomicBool>,
}

impl Spares {
    /// `each` browsers of each of the most asked shapes: the default one, which is headful, and the same headless.
    pub(crate) fn new(each: u32) -> Self {
        let shapes = [Shape::default(), Shape { headless: true, ..Shape::default() }];
        let shelves = shapes.into_iter().map(|shape| Shelf { shape, ready: Vec::new() }).collect();
        Self {
            shelves: Arc::new(Mutex::new(shelves)),
            each: each as usize,
            wanted: Arc::default(),
            failing: Arc::default(),
        }
    }

    fn shelves(&self) -> MutexGuard<'_, Vec<Shelf>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missing(&self) -> Option<Shape> {
        let shelves = self.shelves();
        shelves.iter().find(|shelf| shelf.ready.len() < self.each).map(|shelf| shelf.shape.clone())
    }

    /// How many are ready.
    pub(crate) fn ready(&self) -> u32 {
        let ready = self.shelves().iter().map(|shelf| shelf.ready.len()).sum::<usize>();
        u32::try_from(ready).unwrap_or(u32::MAX)
    }

    /// Whether the last start of a spare failed: a plain browser cannot be started then.
    pub(crate) fn failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// A spare ended by itself; `false` if it was none.
    pub(crate) fn lost(&self, id: BrowserId) -> bool {
        let mut found = false;
        for shelf in self.shelves().iter_mut() {
            let before = shelf.ready.len();
            shelf.ready.retain(|spare| *spare != id);
            found |= shelf.ready.len() < before;
        }
        self.wanted.notify_one();
        found
    }

    /// All of them, which are the caller's to end from now on.
    pub(crate) fn clear(&self) -> Vec<BrowserId> {
        self.shelves().iter_mut().flat_map(|shelf| std::mem::take(&mut shelf.ready)).collect()
    }
}

impl SpareBrowsers for Spares {
    fn take(&self, shape: &Shape) -> Option<BrowserId> {
        let taken = self.shelves().iter_mut().find(|shelf| shelf.shape == *shape)?.ready.pop();
        self.wanted.notify_one();
        taken
    }

    fn put_back(&self, shape: &Shape, id: BrowserId) {
        if let Some(shelf) = self.shelves().iter_mut().find(|shelf| shelf.shape == *shape) {
            shelf.ready.push(id);
        }
    }
}

/// Keeps the reserve filled until `stop`, one start at a time and behind the pools.
pub(crate) async fn run(spares: Spares, engine: Arc<dyn BrowserEngine>, slots: StartSlots, stop: CancellationToken) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(shape) = spares.missing() else {
            tokio::select! {
                () = stop.cancelled() => return,
                () = spares.wanted.notified() => continue,
            }
        };
        let permit = tokio::select! {
            () = stop.cancelled() => return,
            permit = slots.take() => permit,
        };
        let launch = Launch {
            id: BrowserId::mint(&System as &dyn IdSource),
            shape,
            abandoned_after_seconds: ABANDONED_AFTER_SECONDS,
        };
        let started = engine.start(&launch).await;
        drop(permit);
        spares.failing.store(started.is_err() && !stop.is_cancelled(), Ordering::Relaxed);
        match started {
            Ok(_) => {
                debug!(browser = %launch.id, headless = launch.shape.headless, "a spare browser is ready");
                spares.put_back(&launch.shape, launch.id);
                pause = FIRST_PAUSE;
            }
            Err(error) => {
                warn!(%error, retry_in = ?pause, "cannot start a spare browser");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
