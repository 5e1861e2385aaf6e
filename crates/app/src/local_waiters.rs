//! Wakes those who wait in the line of a pool.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::pool::{TicketNotifier, Waiter, WaiterEvent};
use casement_domain::{MonotonicClock as _, MonotonicTime, TicketId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::system::System;

/// Who waits on this node. A waiter costs an entry here and sleeps; nobody asks the database for it.
#[derive(Clone, Default)]
pub(crate) struct LocalWaiters {
    waiters: Arc<Mutex<HashMap<TicketId, Arc<Notify>>>>,
    stopping: CancellationToken,
}

impl LocalWaiters {
    fn waiters(&self) -> MutexGuard<'_, HashMap<TicketId, Arc<Notify>>> {
        // Insertions and removals are whole, so a panic elsewhere leaves nothing half-made.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was decided about a ticket; `false` if nobody here expects news of it.
    pub(crate) fn call(&self, ticket: TicketId) -> bool {
        let waiters = self.waiters();
        let notify = waiters.get(&ticket);
        notify.inspect(|notify| notify.notify_one()).is_some()
    }

    /// The server stops: every wait is over.
    pub(crate) fn close(&self) {
        self.stopping.cancel();
    }
}

impl TicketNotifier for LocalWaiters {
    fn expect(&self, ticket: TicketId) -> Box<dyn Waiter> {
        let notify = Arc::new(Notify::new());
        self.waiters().insert(ticket, Arc::clone(&notify));
        Box::new(LocalWaiter { room: self.clone(), ticket, notify })
    }
}

struct LocalWaiter {
    room: LocalWaiters,
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
            () = self.room.stopping.cancelled() => WaiterEvent::Stopping,
            () = tokio::time::sleep(left) => WaiterEvent::TimeUp,
        }
    }
}

impl Drop for LocalWaiter {
    fn drop(&mut self) {
        self.room.waiters().remove(&self.ticket);
    }
}
