//! Browsers come after the server and the database: a page that wants every processor must not hold up the answers about other sessions.

use std::io;
use std::time::Duration;

/// How many steps a sandbox stands behind. At five of them it gets a third of what another program gets, where there is not enough for both.
const STEPS: i32 = 5;
/// Where the kernel shares the processors out among groups of processes first, a group for each session in its own sense of the word, how nice
/// a process is matters only within its group; this file is about the group.
const GROUP: &str = "/proc/self/autogroup";
/// The kernel takes ten such wishes a second, of everybody together, and many sandboxes may start at once.
const AGAIN_AFTER: Duration = Duration::from_millis(150);
const MAX_ATTEMPTS: usize = 100;

/// Steps back, with all that is started from now on. To be called on the runtime.
pub(crate) fn step_back() {
    if let Err(error) = rustix::process::nice(STEPS) {
        tracing::warn!(%error, "the sandbox keeps the priority it was started with");
    }
    tokio::spawn(step_back_as_group());
}

async fn step_back_as_group() {
    for _ in 0..MAX_ATTEMPTS {
        match std::fs::write(GROUP, STEPS.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(AGAIN_AFTER).await,
            // Done, or the kernel has no such groups.
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return tracing::warn!(%error, "the sandbox keeps the priority of its group"),
        }
    }
}
