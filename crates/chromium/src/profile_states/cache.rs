//! The states of the profiles that were used last.

use std::collections::VecDeque;
use std::sync::Arc;

use casement_agent_protocol::browser_state::StateReading;
use casement_domain::ids::{ProfileId, ProfileVersionId};
use tokio::sync::OnceCell;

/// The maximum number of states, and of the bytes of their JSON together.
const MAX_STATES: usize = 32;
const MAX_BYTES: usize = 64 << 20;

/// A version of a profile.
type Key = (ProfileId, ProfileVersionId);
/// A state, once it is read.
type Entry = Arc<OnceCell<CachedState>>;

/// A state with its size.
#[derive(Debug)]
pub(super) struct CachedState {
    pub(super) reading: Arc<StateReading>,
    bytes: usize,
}

impl CachedState {
    pub(super) fn new(reading: StateReading) -> Self {
        let bytes = serde_json::to_vec(&reading).map_or(usize::MAX, |json| json.len());
        Self { reading: Arc::new(reading), bytes }
    }
}

/// The states, the one that was used last at the end.
#[derive(Debug, Default)]
pub(super) struct Cache(VecDeque<(Key, Entry)>);

impl Cache {
    /// Returns the entry of a version, which is empty if its state is to be read.
    pub(super) fn entry(&mut self, key: Key) -> Entry {
        let known = self.0.iter().position(|(of, _)| *of == key).and_then(|at| self.0.remove(at));
        let entry = known.map_or_else(Entry::default, |(_, entry)| entry);
        self.0.push_back((key, Arc::clone(&entry)));
        self.trim();
        entry
    }

    /// Removes the states beyond the limits, least recently used first.
    pub(super) fn trim(&mut self) {
        let bytes = |cache: &Self| {
            let read = cache.0.iter().filter_map(|(_, entry)| entry.get());
            read.map(|state| state.bytes).fold(0, usize::saturating_add)
        };
        while self.0.len() > MAX_STATES || bytes(self) > MAX_BYTES {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn key(number: u64) -> Key {
        (ProfileId::from_ulid(Ulid::from_parts(1, 1)), ProfileVersionId::from_ulid(Ulid::from_parts(number, 1)))
    }

    fn fill(entry: &Entry, bytes: usize) {
        entry.set(CachedState { reading: Arc::default(), bytes }).unwrap();
    }

    #[test]
    fn the_versions_used_last_are_held() {
        let mut cache = Cache::default();
        for number in 0..MAX_STATES as u64 {
            fill(&cache.entry(key(number)), 1);
        }
        assert!(cache.entry(key(0)).get().is_some());
        assert!(cache.entry(key(1000)).get().is_none());
        assert_eq!(cache.0.len(), MAX_STATES);
        assert!(cache.entry(key(0)).get().is_some(), "it was used after the second one");
        assert!(cache.entry(key(1)).get().is_none());
    }

    #[test]
    fn large_states_displace_others() {
        let mut cache = Cache::default();
        for number in 0..5 {
            fill(&cache.entry(key(number)), MAX_BYTES / 4);
        }
        cache.trim();
        assert_eq!(cache.0.len(), 4);
        fill(&cache.entry(key(9)), usize::MAX);
        cache.trim();
        assert!(cache.0.is_empty());
    }

    #[test]
    fn callers_of_one_version_share_its_entry() {
        let mut cache = Cache::default();
        let first = cache.entry(key(1));
        assert!(Arc::ptr_eq(&first, &cache.entry(key(1))));
    }
}
