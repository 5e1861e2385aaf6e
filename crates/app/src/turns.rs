//! Wakes those who wait in the line of a pool.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::pool::{Turn, TurnEvent, Turns};
use casement_domain::{MonotonicClock as _, MonotonicTime, TicketId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::system::System;

/// Who waits on this node. A waiter costs an entry here and sleeps; nobody asks the database for it.
#[derive(Clone, Default)]
pub(crate) struct WaitingRoom {
    ears: Arc<Mutex<HashMap<TicketId, Arc<Notify>>>>,
    stopping: CancellationToken,
}

impl WaitingRoom {
    fn ears(&self) -> MutexGuard<'_, HashMap<TicketId, Arc<Notify>>> {
        // Insertions and removals are whole, so a panic elsewhere leaves nothing half-made.
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was decided about a ticket; `false` if nobody here expects news of it.
    pub(crate) fn call(&self, ticket: TicketId) -> bool {
        let ears = self.ears();
        let ear = ears.get(&ticket);
        ear.inspect(|ear| ear.notify_one()).is_some()
    }

    /// The server stops: every wait is over.
    pub(crate) fn close(&self) {
        self.stopping.cancel();
    }
}

impl Turns for WaitingRoom {
    fn expect(&self, ticket: TicketId) -> Box<dyn Turn> {
        let ear = Arc::new(Notify::new());
        self.ears().insert(ticket, Arc::clone(&ear));
        Box::new(Ear { room: self.clone(), ticket, ear })
    }
}

struct Ear {
    room: WaitingRoom,
    ticket: TicketId,
    ear: Arc<Notify>,
}

#[async_trait]
impl Turn for Ear {
    async fn wait(&mut self, until: MonotonicTime) -> TurnEvent {
        let left = Duration::try_from(until - System.monotonic_now()).unwrap_or(Duration::ZERO);
        tokio::select! {
            biased;
            () = self.ear.notified() => TurnEvent::Look,
            () = self.room.stopping.cancelled() => TurnEvent::Stopping,
            () = tokio::time::sleep(left) => TurnEvent::TimeUp,
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.room.ears().remove(&self.ticket);
    }
}
