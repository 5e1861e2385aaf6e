//! Places that a node has for work of several owners, so that none of them can take all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many places, of which one owner gets at most three quarters, rounded up, but never the last one unless there is no other.
#[derive(Clone, Debug)]
pub struct FairSlots<O: Ord> {
    taken: Arc<Mutex<BTreeMap<O, usize>>>,
    places: usize,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct FairSlot<O: Ord> {
    taken: Arc<Mutex<BTreeMap<O, usize>>>,
    owner: O,
}

fn lock<O>(taken: &Mutex<BTreeMap<O, usize>>) -> MutexGuard<'_, BTreeMap<O, usize>> {
    // Every change is one call, so a panic elsewhere leaves nothing half-made.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<O: Ord + Clone> FairSlots<O> {
    /// `places` in all, one at least.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self { taken: Arc::default(), places: places.max(1) }
    }

    /// How many of them one owner gets at most.
    #[must_use]
    pub fn of_one(&self) -> usize {
        (self.places - (self.places / 4).max(1)).max(1)
    }

    /// How many places are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.places.saturating_sub(lock(&self.taken).values().sum())
    }

    /// How many an owner has.
    #[must_use]
    pub fn of(&self, owner: &O) -> usize {
        lock(&self.taken).get(owner).copied().unwrap_or_default()
    }

    /// A place for this owner, if one is free and it has not as many as it may.
    #[must_use]
    pub fn take(&self, owner: &O) -> Option<FairSlot<O>> {
        let mut taken = lock(&self.taken);
        let own = taken.get(owner).copied().unwrap_or_default();
        if taken.values().sum::<usize>() >= self.places || own >= self.of_one() {
            return None;
        }
        taken.insert(owner.clone(), own + 1);
        drop(taken);
        Some(FairSlot { taken: Arc::clone(&self.taken), owner: owner.clone() })
    }

    /// Puts those first whose owners have the fewest places, and leaves the order as it is otherwise.
    pub fn fewest_first<T>(&self, waiting: &mut [T], owner: impl Fn(&T) -> O) {
        let taken = lock(&self.taken).clone();
        waiting.sort_by_key(|one| taken.get(&owner(one)).copied().unwrap_or_default());
    }
}

impl<O: Ord> Drop for FairSlot<O> {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        let Some(own) = taken.get_mut(&self.owner) else { return };
        *own -= 1;
        if *own == 0 {
            taken.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_never_has_all_places() {
        for (places, of_one) in [(1, 1), (2, 1), (3, 2), (4, 3), (50, 38)] {
            let fair = FairSlots::new(places);
            let held: Vec<_> = std::iter::from_fn(|| fair.take(&"large")).collect();
            assert_eq!(held.len(), of_one, "of {places}");
            assert_eq!(fair.take(&"small").is_some(), places > 1, "of {places}");
            drop(held);
            assert_eq!((fair.free(), fair.of(&"large")), (places, 0));
        }
    }

    #[test]
    fn whoever_has_the_fewest_comes_first_and_else_whoever_came_first() {
        let fair = FairSlots::new(8);
        let _held = (fair.take(&"a"), fair.take(&"a"), fair.take(&"b"));
        let mut waiting = [("a", 1), ("a", 2), ("b", 3), ("c", 4), ("b", 5), ("c", 6)];
        fair.fewest_first(&mut waiting, |one| one.0);
        assert_eq!(waiting, [("c", 4), ("c", 6), ("b", 3), ("b", 5), ("a", 1), ("a", 2)]);
    }
}
