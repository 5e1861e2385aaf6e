//! Gives the sandbox a lower priority than the server and the database, so that a busy page delays no other session.

use std::io;
use std::time::Duration;

/// The niceness. At 5 the sandbox gets a third of the processor time of another program when both are busy.
const NICENESS: i32 = 5;
/// The niceness of the process's autogroup. A kernel with autogroups shares the processors among these groups first,
/// one for each session id, and the niceness of a process counts only within its group.
const GROUP: &str = "/proc/self/autogroup";
/// The pause between attempts: the kernel accepts ten changes a second from all processes together.
const RETRY_BACKOFF: Duration = Duration::from_millis(150);
const MAX_ATTEMPTS: usize = 100;

/// Lowers the priority of this process and of all that it starts. Must be called within a runtime.
pub(crate) fn lower() {
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::warn!(%error, "cannot lower the priority of the sandbox");
    }
    tokio::spawn(lower_group());
}

async fn lower_group() {
    for _ in 0..MAX_ATTEMPTS {
        match std::fs::write(GROUP, NICENESS.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(RETRY_BACKOFF).await,
            // Done, or the kernel has no autogroups.
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return tracing::warn!(%error, "cannot lower the priority of the sandbox's group"),
        }
    }
}
