//! Limits the simultaneous browser starts of this node. More than the number of cores would slow all of them down.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The node's start slots.
#[derive(Clone)]
pub(crate) struct StartSlots(Arc<Semaphore>);

impl StartSlots {
    /// Creates one slot per core, but at least two.
    pub(crate) fn per_core() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self(Arc::new(Semaphore::new(cores.max(2))))
    }

    /// Waits for a slot, which is released when the permit is dropped.
    pub(crate) async fn take(&self) -> OwnedSemaphorePermit {
        #[expect(clippy::expect_used, reason = "the semaphore is never closed")]
        Arc::clone(&self.0).acquire_owned().await.expect("open")
    }
}
