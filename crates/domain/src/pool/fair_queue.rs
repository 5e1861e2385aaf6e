//! A queue that is fair between owners: many items of one owner do not delay the few of another.

use std::collections::{BTreeMap, VecDeque};

/// First come, first served for each owner; round-robin over the owners.
#[derive(Debug)]
pub struct FairQueue<O, T> {
    owners: VecDeque<O>,
    waiting: BTreeMap<O, VecDeque<T>>,
}

impl<O, T> Default for FairQueue<O, T> {
    fn default() -> Self {
        Self { owners: VecDeque::new(), waiting: BTreeMap::new() }
    }
}

impl<O: Ord + Clone, T> FairQueue<O, T> {
    /// Appends an item to those of its owner.
    pub fn push(&mut self, owner: O, item: T) {
        let items = self.waiting.entry(owner.clone()).or_default();
        if items.is_empty() {
            self.owners.push_back(owner);
        }
        items.push_back(item);
    }

    /// Removes the next item: the first one of the next owner.
    pub fn pop(&mut self) -> Option<T> {
        let owner = self.owners.pop_front()?;
        let items = self.waiting.get_mut(&owner)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.owners.push_back(owner);
        }
        item
    }

    /// Returns the number of waiting items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Returns whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_with_one_item_is_served_second_at_the_latest() {
        let mut queue = FairQueue::default();
        (0..10_000).for_each(|n| queue.push("large", n));
        queue.push("small", 1);
        assert_eq!(queue.pop(), Some(0));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.pop(), Some(1), "and then the large one again, in its order");
        assert_eq!(queue.len(), 9_998);
    }
}
