//! Limits the work that an endless stream of messages causes: a burst, and a share of each second.

use std::time::{Duration, Instant};

/// The longest burst of work.
const MAX_BURST: Duration = Duration::from_secs(1);
/// Continuous work may take 1/`SHARE` of the time.
const SHARE: u32 = 3;

/// The remaining time for work.
#[derive(Debug)]
pub(super) struct Throttle {
    left: Duration,
    at: Instant,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { left: MAX_BURST, at: Instant::now() }
    }
}

impl Throttle {
    /// Records work that began at `since` and ends now.
    pub(super) fn record(&mut self, since: Instant) {
        let now = Instant::now();
        self.left = self.left.saturating_sub(now - since);
        self.left = (self.left + (now - self.at) / SHARE).min(MAX_BURST);
        self.at = now;
    }

    /// Returns true if no more work is allowed now.
    pub(super) fn is_exhausted(&mut self) -> bool {
        if self.left > MAX_BURST / 100 {
            return false;
        }
        let now = Instant::now();
        self.record(now);
        self.left <= MAX_BURST / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_an_endless_stream_is_throttled() {
        let mut throttle = Throttle::default();
        assert!(!throttle.is_exhausted());
        let Some(long_ago) = Instant::now().checked_sub(MAX_BURST) else { return };
        throttle.at = Instant::now();
        throttle.record(long_ago);
        assert!(throttle.is_exhausted());
        let started_at = Instant::now();
        while throttle.is_exhausted() {
            std::thread::yield_now();
            assert!(started_at.elapsed().as_secs() < 30, "it is exhausted for ever");
        }
    }
}
