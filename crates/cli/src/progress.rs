//! Progress on standard error: standard output holds only the result of a command.

use std::io::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::text::without_controls;

/// Writes a line to standard error.
pub(crate) fn say(text: &str) {
    // A failed write is ignored.
    writeln!(std::io::stderr(), "{}", without_controls(text)).ok();
}

/// The progress of a transfer. It is shown on a terminal only.
pub(crate) struct Transfer(ProgressBar);

impl Transfer {
    /// Begins a transfer of this many bytes, if known.
    pub(crate) fn new(length: Option<u64>, is_shown: bool) -> Self {
        let bar = match (is_shown, length) {
            (false, _) => ProgressBar::hidden(),
            (true, Some(length)) => {
                let style =
                    ProgressStyle::with_template("{bytes} of {total_bytes} {wide_bar} {binary_bytes_per_sec} {eta}");
                ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            }
            (true, None) => {
                let style = ProgressStyle::with_template("{spinner} {bytes} {binary_bytes_per_sec}");
                ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
            }
        };
        Self(bar)
    }

    /// Begins work whose length is unknown.
    pub(crate) fn waiting(what: &str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(without_controls(what));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    pub(crate) fn advance(&self, bytes: usize) {
        self.0.inc(bytes as u64);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
