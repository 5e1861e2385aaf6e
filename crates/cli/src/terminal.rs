//! The terminal of the user, for a program with a terminal in a session.

use std::io::{stdin, stdout};

use anyhow::Context as _;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Passes each key on as it is, until it is dropped.
pub(crate) struct RawMode(Termios);

impl RawMode {
    pub(crate) fn enter() -> anyhow::Result<Self> {
        let before = tcgetattr(stdin()).context("the terminal cannot be read")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).context("the terminal cannot be changed")?;
        Ok(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone needs no mode.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

/// Returns the columns and the rows of the terminal, if standard output is one.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
