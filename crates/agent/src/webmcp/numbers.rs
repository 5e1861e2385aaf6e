//! The numbers of tabs and embedded frames.

use std::collections::{HashMap, HashSet};

/// Numbers that rise with each tab and frame, and remain while it exists.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: u64,
    known: HashMap<String, u64>,
}

impl Numbers {
    /// Returns the number of a tab or frame. A new one gets the next number.
    pub(super) fn of(&mut self, id: &str) -> u64 {
        if let Some(number) = self.known.get(id) {
            return *number;
        }
        self.last += 1;
        self.known.insert(id.to_owned(), self.last);
        self.last
    }

    /// Forgets all tabs and frames except these.
    pub(super) fn retain<'a>(&mut self, ids: impl Iterator<Item = &'a String>) {
        let ids: HashSet<&String> = ids.collect();
        self.known.retain(|id, _| ids.contains(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_remains_and_is_never_given_twice() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.of("a"), numbers.of("b"), numbers.of("a")], [1, 2, 1]);
        let remaining = ["b".to_owned()];
        numbers.retain(remaining.iter());
        assert_eq!([numbers.of("b"), numbers.of("a")], [2, 3]);
    }
}
