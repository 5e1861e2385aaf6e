//! The ports of time, identifiers and randomness. The domain never reads them from the system.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Add, Sub};

use time::{Duration, OffsetDateTime};
use ulid::Ulid;

/// The wall clock, for records and for times that outlast a restart. It may be set at any moment, so no wait or timeout
/// inside a process depends on it; see [`MonotonicClock`].
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Clock: Send + Sync {
    /// Returns the time in UTC. It need not be monotonic.
    fn now(&self) -> OffsetDateTime;
}

/// The clock for durations inside a process. It cannot be set.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait MonotonicClock: Send + Sync {
    /// Returns the time, never earlier than one returned before.
    fn monotonic_now(&self) -> MonotonicTime;
}

/// A time inside this process. Only differences have a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicTime(Duration);

impl MonotonicTime {
    /// Creates the time at a duration after the clock's origin.
    #[must_use]
    pub const fn after_origin(duration: Duration) -> Self {
        Self(duration)
    }
}

impl Add<Duration> for MonotonicTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for MonotonicTime {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl Sub for MonotonicTime {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The time since which this process has seen each item of a set without a gap.
#[derive(Debug)]
pub struct FirstSeen<K>(HashMap<K, MonotonicTime>);

impl<K> Default for FirstSeen<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> FirstSeen<K> {
    /// Returns the items of `present` that have been present for at least `long`. Absent items are removed.
    pub fn seen_for(&mut self, present: impl IntoIterator<Item = K>, long: Duration, now: MonotonicTime) -> Vec<K> {
        let known = std::mem::take(&mut self.0);
        self.0.extend(present.into_iter().map(|one| {
            let since = known.get(&one).copied().unwrap_or(now);
            (one, since)
        }));
        self.0.iter().filter(|(_, since)| now - **since >= long).map(|(one, _)| one.clone()).collect()
    }
}

/// A source of new identifiers.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait IdSource: Send + Sync {
    /// Returns a new identifier. The identifiers of one source sort in the order of their creation.
    fn next(&self) -> Ulid;
}

/// A source of secrets.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Entropy: Send + Sync {
    /// Returns 32 unpredictable bytes.
    fn secret_bytes(&self) -> [u8; 32];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_was_absent_is_seen_anew() {
        let at = |seconds| MonotonicTime::after_origin(Duration::seconds(seconds));
        let (mut seen, long) = (FirstSeen::default(), Duration::seconds(10));
        assert!(seen.seen_for(["a", "b"], long, at(0)).is_empty());
        assert!(seen.seen_for(["a"], long, at(5)).is_empty());
        assert_eq!(seen.seen_for(["a", "b"], long, at(10)), ["a"]);
        assert_eq!(seen.seen_for(["b"], long, at(20)), ["b"]);
    }
}
