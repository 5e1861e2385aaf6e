//! Slots that sessions share fairly, so that many requests of some sessions do not block the few requests of another.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// A session that holds slots gets another one only while the number of free slots exceeds this multiple of them.
const FREE_PER_HELD: usize = 4;

/// A number of slots. The waiting session with the fewest slots is served first; among equals, in order of arrival.
/// The last slots are reserved for sessions without a slot. Clones share the slots.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSlots(Arc<Mutex<SlotState>>);

#[derive(Debug)]
struct SlotState {
    free: usize,
    /// The number of slots that each session holds; sessions without a slot have no entry.
    held_slots: HashMap<usize, usize>,
    waiting: VecDeque<(usize, oneshot::Sender<ConnectionSlot>)>,
}

/// A slot, released when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    connection_slots: ConnectionSlots,
    session: usize,
}

impl ConnectionSlots {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(SlotState { free: count, held_slots: HashMap::new(), waiting: VecDeque::new() })))
    }

    /// Waits for a slot for a session.
    pub(crate) async fn take(&self, session: usize) -> io::Result<ConnectionSlot> {
        let (sender, receiver) = oneshot::channel();
        self.state().waiting.push_back((session, sender));
        self.serve();
        receiver.await.map_err(io::Error::other)
    }

    fn serve(&self) {
        while let Some((sender, slot)) = self.next() {
            // The lock is not held: if the waiter has given up, the slot is dropped here, which takes the lock.
            drop(sender.send(slot));
        }
    }

    /// Removes and returns the next waiter, with its slot.
    fn next(&self) -> Option<(oneshot::Sender<ConnectionSlot>, ConnectionSlot)> {
        let mut state = self.state();
        state.waiting.retain(|(_, sender)| !sender.is_closed());
        let (session, sender) = state.next_waiter().and_then(|next_waiter| state.waiting.remove(next_waiter))?;
        state.free -= 1;
        *state.held_slots.entry(session).or_default() += 1;
        Some((sender, ConnectionSlot { connection_slots: self.clone(), session }))
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock()
    }
}

impl SlotState {
    /// Returns the position of the next waiter, if there is a slot for it.
    fn next_waiter(&self) -> Option<usize> {
        let has = |session| self.held_slots.get(session).copied().unwrap_or_default();
        let all = self.waiting.iter().enumerate().map(|(position, (session, _))| (has(session), position));
        let (has, position) = all.min()?;
        let may = if has == 0 { self.free > 0 } else { self.free > FREE_PER_HELD * has };
        may.then_some(position)
    }

    fn release(&mut self, session: usize) {
        self.free += 1;
        if let Some(has) = self.held_slots.get_mut(&session) {
            *has -= 1;
            if *has == 0 {
                self.held_slots.remove(&session);
            }
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connection_slots.state().release(self.session);
        self.connection_slots.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use tokio::time::timeout;

    use super::*;

    /// Takes all slots that the session gets without waiting.
    async fn all(connection_slots: &ConnectionSlots, session: usize) -> Vec<ConnectionSlot> {
        let mut held_slots = Vec::new();
        while let Some(slot) = immediately(connection_slots.take(session)).await {
            held_slots.push(slot);
        }
        held_slots
    }

    async fn immediately(slot: impl Future<Output = io::Result<ConnectionSlot>>) -> Option<ConnectionSlot> {
        timeout(Duration::from_millis(1), slot).await.ok()?.ok()
    }

    #[tokio::test]
    async fn a_session_gets_at_most_a_quarter_of_the_free_slots() {
        let connection_slots = ConnectionSlots::new(100);
        let (one, two) = (all(&connection_slots, 1).await, all(&connection_slots, 2).await);
        assert_eq!((one.len(), two.len()), (20, 16));
        drop((one, two));
        assert_eq!(all(&connection_slots, 3).await.len(), 20, "all places are free again");
    }

    #[tokio::test]
    async fn the_last_slot_is_for_a_session_that_has_none() {
        let connection_slots = ConnectionSlots::new(2);
        let _one = all(&connection_slots, 1).await;
        assert!(immediately(connection_slots.take(1)).await.is_none());
        let _two = immediately(connection_slots.take(2)).await.unwrap();
        assert!(immediately(connection_slots.take(3)).await.is_none(), "there is none left");
    }

    #[tokio::test]
    async fn the_session_with_fewest_slots_is_first_then_by_arrival() {
        let connection_slots = ConnectionSlots::new(1);
        let held = connection_slots.take(1).await.unwrap();
        let (mut again, mut second, mut third) =
            (pin!(connection_slots.take(1)), pin!(connection_slots.take(2)), pin!(connection_slots.take(3)));
        for waiting in [again.as_mut(), second.as_mut(), third.as_mut()] {
            assert!(immediately(waiting).await.is_none());
        }
        connection_slots.state().held_slots.insert(1, 2);
        drop(held);
        let second = immediately(second.as_mut()).await.unwrap();
        assert!(immediately(third.as_mut()).await.is_none());
        drop(second);
        assert!(immediately(third.as_mut()).await.is_some());
        assert!(immediately(again.as_mut()).await.is_none());
    }

    #[tokio::test]
    async fn a_dropped_waiter_takes_no_slot() {
        let connection_slots = ConnectionSlots::new(1);
        let held = connection_slots.take(1).await.unwrap();
        assert!(immediately(connection_slots.take(2)).await.is_none());
        let mut third = pin!(connection_slots.take(3));
        assert!(immediately(third.as_mut()).await.is_none());
        {
            // Dropped after the slot was assigned, before it was taken.
            let mut late = Box::pin(connection_slots.take(0));
            assert!(immediately(late.as_mut()).await.is_none());
            connection_slots.state().waiting.rotate_right(1);
            drop(held);
            assert!(connection_slots.state().held_slots.contains_key(&0));
        }
        assert!(immediately(third.as_mut()).await.is_some());
        assert_eq!(connection_slots.state().free, 1);
    }
}
