//! Sandboxes as the kernel sees them: real bubblewrap, real processes.

mod isolation;
mod support;
