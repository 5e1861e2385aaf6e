//! How much work an endless stream may make: some at once, and a part of each second.

use std::time::{Duration, Instant};

/// The work that may come at once.
const AT_ONCE: Duration = Duration::from_secs(1);
/// The part of the time that it may take for as long as it likes: one in so many.
const ONE_IN: u32 = 3;

/// What is left of it.
#[derive(Debug)]
pub(super) struct Flow {
    left: Duration,
    at: Instant,
}

impl Default for Flow {
    fn default() -> Self {
        Self { left: AT_ONCE, at: Instant::now() }
    }
}

impl Flow {
    /// Something was taken in, which began to be worked on then.
    pub(super) fn took(&mut self, since: Instant) {
        let now = Instant::now();
        self.left = self.left.saturating_sub(now - since);
        self.left = (self.left + (now - self.at) / ONE_IN).min(AT_ONCE);
        self.at = now;
    }

    /// No more may be taken in now.
    pub(super) fn is_dry(&mut self) -> bool {
        if self.left > AT_ONCE / 100 {
            return false;
        }
        let now = Instant::now();
        self.took(now);
        self.left <= AT_ONCE / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_an_endless_stream_is_thinned_out() {
        let mut flow = Flow::default();
        assert!(!flow.is_dry());
        let Some(long_ago) = Instant::now().checked_sub(AT_ONCE) else { return };
        flow.at = Instant::now();
        flow.took(long_ago);
        assert!(flow.is_dry());
        let began = Instant::now();
        while flow.is_dry() {
            std::thread::yield_now();
            assert!(began.elapsed().as_secs() < 30, "it never flows again");
        }
    }
}
