//! Integration tests of builds and calls in real sandboxes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod builds;
mod calls;
mod git;
mod hostile;
mod packages;
mod reaching;
mod support;
mod waiting;
