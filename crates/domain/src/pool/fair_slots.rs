//! The slots of a node for work of several owners, of which no owner can take all.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// A fixed number of slots. One owner gets at most three quarters, rounded up, but never the last slot unless it is the
/// only one.
#[derive(Clone, Debug)]
pub struct FairSlots<O: Ord> {
    taken: Arc<Mutex<BTreeMap<O, usize>>>,
    slots: usize,
}

/// A taken slot, freed on drop.
#[derive(Debug)]
pub struct FairSlot<O: Ord> {
    taken: Arc<Mutex<BTreeMap<O, usize>>>,
    owner: O,
}

fn lock<O>(taken: &Mutex<BTreeMap<O, usize>>) -> MutexGuard<'_, BTreeMap<O, usize>> {
    taken.lock()
}

impl<O: Ord + Clone> FairSlots<O> {
    /// Creates `slots` slots, at least one.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { taken: Arc::default(), slots: slots.max(1) }
    }

    /// Returns the maximum of one owner.
    #[must_use]
    pub fn max_per_owner(&self) -> usize {
        (self.slots - (self.slots / 4).max(1)).max(1)
    }

    /// Returns the number of free slots.
    #[must_use]
    pub fn free(&self) -> usize {
        self.slots.saturating_sub(lock(&self.taken).values().sum())
    }

    /// Returns the number of slots that an owner has.
    #[must_use]
    pub fn of(&self, owner: &O) -> usize {
        lock(&self.taken).get(owner).copied().unwrap_or_default()
    }

    /// Takes a slot for this owner, if one is free and the owner is below its maximum.
    #[must_use]
    pub fn take(&self, owner: &O) -> Option<FairSlot<O>> {
        let mut taken = lock(&self.taken);
        let own = taken.get(owner).copied().unwrap_or_default();
        if taken.values().sum::<usize>() >= self.slots || own >= self.max_per_owner() {
            return None;
        }
        taken.insert(owner.clone(), own + 1);
        drop(taken);
        Some(FairSlot { taken: Arc::clone(&self.taken), owner: owner.clone() })
    }

    /// Sorts the items by the number of slots of their owners, fewest first; the sort is stable.
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
    fn one_owner_never_has_all_slots() {
        for (slots, max_per_owner) in [(1, 1), (2, 1), (3, 2), (4, 3), (50, 38)] {
            let fair = FairSlots::new(slots);
            let held: Vec<_> = std::iter::from_fn(|| fair.take(&"large")).collect();
            assert_eq!(held.len(), max_per_owner, "of {slots}");
            assert_eq!(fair.take(&"small").is_some(), slots > 1, "of {slots}");
            drop(held);
            assert_eq!((fair.free(), fair.of(&"large")), (slots, 0));
        }
    }

    #[test]
    fn the_owner_with_the_fewest_slots_comes_first_then_arrival_order() {
        let fair = FairSlots::new(8);
        let _held = (fair.take(&"a"), fair.take(&"a"), fair.take(&"b"));
        let mut waiting = [("a", 1), ("a", 2), ("b", 3), ("c", 4), ("b", 5), ("c", 6)];
        fair.fewest_first(&mut waiting, |one| one.0);
        assert_eq!(waiting, [("c", 4), ("c", 6), ("b", 3), ("b", 5), ("a", 1), ("a", 2)]);
    }
}
