//! Whether a client takes what it is sent.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

/// Since when the kernel has taken nothing more for a client. The connection notes it, and whoever sends over the
/// connection learns from it why it ended; clones are of the same connection.
#[derive(Clone, Debug, Default)]
pub struct Backlog(Rc<Cell<Option<Instant>>>);

impl Backlog {
    /// Nothing of what there is to send was taken.
    pub(crate) fn stuck(&self) {
        if self.0.get().is_none() {
            self.0.set(Some(Instant::now()));
        }
    }

    /// Some of it was.
    pub(crate) fn moved(&self) {
        self.0.set(None);
    }

    /// For how long nothing was taken; zero while nothing waits.
    pub(crate) fn stuck_for(&self) -> Duration {
        self.0.get().map(|since| since.elapsed()).unwrap_or_default()
    }
}
