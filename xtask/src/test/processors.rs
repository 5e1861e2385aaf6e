//! How busy the processors of this machine are.

use std::fs;

/// The time of all processors since the machine started, in the unit of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    all: u64,
    idle: u64,
}

impl Times {
    /// Reads the times until now; `None` if the system does not have them.
    pub(super) fn now() -> Option<Self> {
        Self::parsed(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parsed(stat: &str) -> Option<Self> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        // Those of guests, at the end, are also part of the first two.
        let times = numbers.take(8).map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        // Idle, and idle while a disk works.
        Some(Self { all: times.iter().sum(), idle: times.get(3)? + times.get(4)? })
    }

    /// Returns how much of the time since `earlier` the processors worked, in percent.
    pub(super) fn busy_percent_since(self, earlier: Self) -> u64 {
        let (all, idle) = (self.all.saturating_sub(earlier.all), self.idle.saturating_sub(earlier.idle));
        100 * all.saturating_sub(idle) / all.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_share_is_that_between_two_readings() {
        let first = Times::parsed("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3\n").expect("times");
        let second = Times::parsed("cpu  160 0 70 810 60 0 0 0 9 0\n").expect("times");
        assert_eq!(first, Times { all: 1000, idle: 850 });
        assert_eq!(second.busy_percent_since(first), 80);
        assert_eq!(first.busy_percent_since(first), 0);
        assert_eq!(Times::parsed("intr 1 2"), None);
        assert!(Times::now().is_some());
    }
}
