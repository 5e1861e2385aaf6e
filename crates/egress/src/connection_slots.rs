//! Places that sessions share, so that the many wishes of some do not keep the few of another waiting.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// Who has some gets another place only while that many times as many are free.
const SPARE: usize = 4;

/// So many places. Who has none gets one before who has some; among those who have as many, who came first. The last ones are for sessions
/// that have none. Clones share the places.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSlots(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    /// How many each session has; those that have none are not in it.
    taken: HashMap<usize, usize>,
    waiting: VecDeque<(usize, oneshot::Sender<ConnectionSlot>)>,
}

/// A place, free again once this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    connection_slots: ConnectionSlots,
    session: usize,
}

impl ConnectionSlots {
    pub(crate) fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: places, taken: HashMap::new(), waiting: VecDeque::new() })))
    }

    /// A place for a session, once it is its turn.
    pub(crate) async fn take(&self, session: usize) -> io::Result<ConnectionSlot> {
        let (give, given) = oneshot::channel();
        self.state().waiting.push_back((session, give));
        self.serve();
        given.await.map_err(io::Error::other)
    }

    fn serve(&self) {
        while let Some((give, turn)) = self.next() {
            // Without the lock: the place of one who has given up meanwhile is given back here.
            drop(give.send(turn));
        }
    }

    /// Whose turn it is, with the place.
    fn next(&self) -> Option<(oneshot::Sender<ConnectionSlot>, ConnectionSlot)> {
        let mut state = self.state();
        state.waiting.retain(|(_, give)| !give.is_closed());
        let (session, give) = state.first().and_then(|first| state.waiting.remove(first))?;
        state.free -= 1;
        *state.taken.entry(session).or_default() += 1;
        Some((give, ConnectionSlot { connection_slots: self.clone(), session }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The position of who is next, if there is a place for him.
    fn first(&self) -> Option<usize> {
        let has = |session| self.taken.get(session).copied().unwrap_or_default();
        let all = self.waiting.iter().enumerate().map(|(position, (session, _))| (has(session), position));
        let (has, position) = all.min()?;
        let may = if has == 0 { self.free > 0 } else { self.free > SPARE * has };
        may.then_some(position)
    }

    fn give_back(&mut self, session: usize) {
        self.free += 1;
        if let Some(has) = self.taken.get_mut(&session) {
            *has -= 1;
            if *has == 0 {
                self.taken.remove(&session);
            }
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connection_slots.state().give_back(self.session);
        self.connection_slots.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use tokio::time::timeout;

    use super::*;

    /// As many places as the session gets without waiting.
    async fn all(connection_slots: &ConnectionSlots, session: usize) -> Vec<ConnectionSlot> {
        let mut taken = Vec::new();
        while let Some(turn) = at_once(connection_slots.take(session)).await {
            taken.push(turn);
        }
        taken
    }

    async fn at_once(turn: impl Future<Output = io::Result<ConnectionSlot>>) -> Option<ConnectionSlot> {
        timeout(Duration::from_millis(1), turn).await.ok()?.ok()
    }

    #[tokio::test]
    async fn a_session_gets_no_more_than_a_quarter_of_what_stays_free() {
        let connection_slots = ConnectionSlots::new(100);
        let (one, two) = (all(&connection_slots, 1).await, all(&connection_slots, 2).await);
        assert_eq!((one.len(), two.len()), (20, 16));
        drop((one, two));
        assert_eq!(all(&connection_slots, 3).await.len(), 20, "all places are free again");
    }

    #[tokio::test]
    async fn the_last_place_is_for_a_session_that_has_none() {
        let connection_slots = ConnectionSlots::new(2);
        let _one = all(&connection_slots, 1).await;
        assert!(at_once(connection_slots.take(1)).await.is_none());
        let _two = at_once(connection_slots.take(2)).await.unwrap();
        assert!(at_once(connection_slots.take(3)).await.is_none(), "there is none left");
    }

    #[tokio::test]
    async fn who_has_fewest_is_served_first_and_then_who_came_first() {
        let connection_slots = ConnectionSlots::new(1);
        let held = connection_slots.take(1).await.unwrap();
        let (mut again, mut second, mut third) =
            (pin!(connection_slots.take(1)), pin!(connection_slots.take(2)), pin!(connection_slots.take(3)));
        for waiting in [again.as_mut(), second.as_mut(), third.as_mut()] {
            assert!(at_once(waiting).await.is_none());
        }
        connection_slots.state().taken.insert(1, 2);
        drop(held);
        let second = at_once(second.as_mut()).await.unwrap();
        assert!(at_once(third.as_mut()).await.is_none());
        drop(second);
        assert!(at_once(third.as_mut()).await.is_some());
        assert!(at_once(again.as_mut()).await.is_none());
    }

    #[tokio::test]
    async fn who_has_given_up_takes_nobodys_turn() {
        let connection_slots = ConnectionSlots::new(1);
        let held = connection_slots.take(1).await.unwrap();
        assert!(at_once(connection_slots.take(2)).await.is_none());
        let mut third = pin!(connection_slots.take(3));
        assert!(at_once(third.as_mut()).await.is_none());
        {
            // Given up after the place was given, before it was taken.
            let mut late = Box::pin(connection_slots.take(0));
            assert!(at_once(late.as_mut()).await.is_none());
            connection_slots.state().waiting.rotate_right(1);
            drop(held);
            assert!(connection_slots.state().taken.contains_key(&0));
        }
        assert!(at_once(third.as_mut()).await.is_some());
        assert_eq!(connection_slots.state().free, 1);
    }
}
