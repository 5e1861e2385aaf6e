//! The progress of a long command on standard error, where each line is complete, so that it can go to a log.

use std::io::Write as _;

use casement_domain::{MonotonicClock as _, MonotonicTime};
use time::Duration;

use super::size;
use crate::system::System;

const INTERVAL: Duration = Duration::seconds(5);

/// One step of a command.
pub(crate) struct Progress {
    step: &'static str,
    bytes: u64,
    next: MonotonicTime,
}

impl Progress {
    /// Begins a step and prints it.
    pub(crate) fn begin(step: &'static str) -> Self {
        print(step);
        Self::new(step)
    }

    /// Begins a step without printing it.
    pub(crate) fn new(step: &'static str) -> Self {
        Self { step, bytes: 0, next: next() }
    }

    /// Counts bytes, and prints their number at most every five seconds.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if System.monotonic_now() >= self.next {
            print(&format!("{}: {}", self.step, size(self.bytes)));
            self.next = next();
        }
    }
}

fn next() -> MonotonicTime {
    System.monotonic_now() + INTERVAL
}

/// Prints a line; a closed standard error does not end the command.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
