//! Time, identifiers and chance, as ports: the domain never asks the system.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Add, Sub};

use time::{Duration, OffsetDateTime};
use ulid::Ulid;

/// What time it is: for records, and for what lasts across restarts. Somebody may set it at any moment, so no wait and no bound
/// inside a process counts on it; see [`MonotonicClock`].
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Clock: Send + Sync {
    /// Now, in UTC. Need not be monotonic.
    fn now(&self) -> OffsetDateTime;
}

/// How time passes inside a process. Nobody can set it.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait MonotonicClock: Send + Sync {
    /// The moment now. Never before one that was told earlier.
    fn monotonic_now(&self) -> MonotonicTime;
}

/// A moment inside this process. Only the time between two of them means something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicTime(Duration);

impl MonotonicTime {
    /// So long after the moment from which the clock counts.
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

/// Since when this process has seen each of some things without a break.
#[derive(Debug)]
pub struct FirstSeen<K>(HashMap<K, MonotonicTime>);

impl<K> Default for FirstSeen<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> FirstSeen<K> {
    /// Those of the things that are there at `now` which have been there for `long` or longer. What is not there is forgotten.
    pub fn seen_for(&mut self, there: impl IntoIterator<Item = K>, long: Duration, now: MonotonicTime) -> Vec<K> {
        let known = std::mem::take(&mut self.0);
        self.0.extend(there.into_iter().map(|one| {
            let since = known.get(&one).copied().unwrap_or(now);
            (one, since)
        }));
        self.0.iter().filter(|(_, since)| now - **since >= long).map(|(one, _)| one.clone()).collect()
    }
}

/// Where new identifiers come from.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait IdSource: Send + Sync {
    /// An identifier that was never given before. Later ones sort behind earlier ones of the same source.
    fn next(&self) -> Ulid;
}

/// Where secrets come from.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Entropy: Send + Sync {
    /// 32 bytes that nobody can guess.
    fn secret_bytes(&self) -> [u8; 32];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_away_in_between_is_seen_anew() {
        let at = |seconds| MonotonicTime::after_origin(Duration::seconds(seconds));
        let (mut seen, long) = (FirstSeen::default(), Duration::seconds(10));
        assert!(seen.seen_for(["a", "b"], long, at(0)).is_empty());
        assert!(seen.seen_for(["a"], long, at(5)).is_empty());
        assert_eq!(seen.seen_for(["a", "b"], long, at(10)), ["a"]);
        assert_eq!(seen.seen_for(["b"], long, at(20)), ["b"]);
    }
}
