//! The repositories of sessions, browsers and pools in memory, for teams that embed the domain and for quick tests.
//!
//! [`Memory`] is the store of one node: all rows are behind one lock, so that each call is a transaction. [`Service`]
//! wires the use cases of sessions and pools to it. `cargo run -p casement-memory --example embed` shows both. Nothing
//! is stored beyond the process.

mod browsers;
mod pools;
mod service;
mod sessions;
mod state;
mod wait_queue;

use std::sync::Arc;

use casement_domain::MonotonicClock;
use casement_domain::organization::Caps;
use parking_lot::{Mutex, MutexGuard};

pub use service::{Service, System};

use state::State;

/// The repositories and the wait queues of one project. Clones share the rows.
#[derive(Clone)]
pub struct Memory {
    caps: Caps,
    clock: Arc<dyn MonotonicClock>,
    state: Arc<Mutex<State>>,
}

impl Memory {
    /// Creates a store without rows. `caps` are the project's limits; `clock` is for the timeouts of waiters.
    #[must_use]
    pub fn new(caps: Caps, clock: Arc<dyn MonotonicClock>) -> Self {
        Self { caps, clock, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn contains(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}
