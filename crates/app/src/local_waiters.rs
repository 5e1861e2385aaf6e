//! Wakes the callers that wait in the wait queue of a pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::pool::{TicketNotifier, Waiter, WaiterEvent};
use casement_domain::{MonotonicClock as _, MonotonicTime, TicketId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::system::System;

/// The waiters of this node. They sleep without queries to the database. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct LocalWaiters {
    waiters: Arc<Mutex<HashMap<TicketId, Arc<Notify>>>>,
    stopping: CancellationToken,
}

impl LocalWaiters {
    fn waiters(&self) -> MutexGuard<'_, HashMap<TicketId, Arc<Notify>>> {
        // Insertions and removals are complete, so a panic elsewhere leaves no partial change.
        self.waiters.lock()
    }

    /// Wakes every waiter, to look at its ticket.
    pub(crate) fn wake_all(&self) {
        self.waiters().values().for_each(|notify| notify.notify_one());
    }

    /// Ends every wait, because the server stops.
    pub(crate) fn close(&self) {
        self.stopping.cancel();
    }
}

impl TicketNotifier for LocalWaiters {
    fn expect(&self, ticket: TicketId) -> Box<dyn Waiter> {
        let notify = Arc::new(Notify::new());
        self.waiters().insert(ticket, Arc::clone(&notify));
        Box::new(LocalWaiter { registry: self.clone(), ticket, notify })
    }

    fn wake(&self, ticket: TicketId) -> bool {
        let waiters = self.waiters();
        let notify = waiters.get(&ticket);
        notify.inspect(|notify| notify.notify_one()).is_some()
    }
}

struct LocalWaiter {
    registry: LocalWaiters,
    ticket: TicketId,
    notify: Arc<Notify>,
}

#[async_trait]
impl Waiter for LocalWaiter {
    async fn wait(&mut self, until: MonotonicTime) -> WaiterEvent {
        let left = Duration::try_from(until - System.monotonic_now()).unwrap_or(Duration::ZERO);
        tokio::select! {
            biased;
            () = self.notify.notified() => WaiterEvent::Look,
            () = self.registry.stopping.cancelled() => WaiterEvent::Stopping,
            () = tokio::time::sleep(left) => WaiterEvent::TimeUp,
        }
    }
}

impl Drop for LocalWaiter {
    fn drop(&mut self) {
        self.registry.waiters().remove(&self.ticket);
    }
}
