//! The growing pause after consecutive failures.

use std::time::Duration;

/// The next pause. Pauses double from a first one up to a maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates pauses from `first` to `max`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// Returns the pause after one more failure.
    #[must_use]
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.min(self.max);
        self.next = pause.saturating_mul(2).min(self.max);
        pause
    }

    /// Returns to the first pause, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_start_again_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let pauses: Vec<u64> = (0..5).map(|_| backoff.next_pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next_pause(), Duration::from_secs(1));
        assert_eq!(Backoff::new(Duration::from_secs(9), Duration::from_secs(5)).next_pause(), Duration::from_secs(5));
    }
}
