//! The timers of a capture.

use std::collections::BTreeSet;

use tokio::time::Instant;

/// The kind of a timer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::telemetry) enum Timer {
    /// The network of a session may be idle.
    Idle(String),
    /// The layout of a session may have settled.
    Settled(String),
    /// The open captchas must be checked.
    Captchas,
    /// A loss must be reported as a gap.
    Gap,
}

/// The running timers, by their time.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(in crate::telemetry) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn take_due(&mut self) -> Option<Timer> {
        self.next().filter(|at| *at <= Instant::now())?;
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
