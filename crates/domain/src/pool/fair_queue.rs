//! A queue in which nobody's many wishes hold up another's few.

use std::collections::{BTreeMap, VecDeque};

/// First come, first served for each owner; round-robin over the owners.
#[derive(Debug)]
pub struct FairQueue<O, T> {
    tickets: VecDeque<O>,
    waiting: BTreeMap<O, VecDeque<T>>,
}

impl<O, T> Default for FairQueue<O, T> {
    fn default() -> Self {
        Self { tickets: VecDeque::new(), waiting: BTreeMap::new() }
    }
}

impl<O: Ord + Clone, T> FairQueue<O, T> {
    /// Puts an item behind those of its owner.
    pub fn push(&mut self, owner: O, item: T) {
        let line = self.waiting.entry(owner.clone()).or_default();
        if line.is_empty() {
            self.tickets.push_back(owner);
        }
        line.push_back(item);
    }

    /// The next item: the first of the owner whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let owner = self.tickets.pop_front()?;
        let line = self.waiting.get_mut(&owner)?;
        let item = line.pop_front();
        if line.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.tickets.push_back(owner);
        }
        item
    }

    /// How many items wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h4_an_owner_with_one_wish_is_served_second_at_the_latest() {
        let mut queue = FairQueue::default();
        (0..10_000).for_each(|n| queue.push("large", n));
        queue.push("small", 1);
        assert_eq!(queue.pop(), Some(0));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.pop(), Some(1), "and then the large one again, in its order");
        assert_eq!(queue.len(), 9_998);
    }
}
