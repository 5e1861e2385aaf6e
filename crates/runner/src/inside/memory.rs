//! Whether the sandbox holds more memory than it may, for hosts where no cgroup holds it down.

use std::time::Duration;

/// How often it is looked.
const INTERVAL: Duration = Duration::from_millis(500);

/// Returns when all processes and files of the sandbox together hold more than `limit` bytes; never without a limit.
pub(super) async fn exceeded(limit: Option<u64>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        tokio::time::sleep(INTERVAL).await;
        let over = tokio::task::spawn_blocking(move || casement_sandbox::over_limit(limit)).await;
        if matches!(over, Ok(true)) {
            return;
        }
    }
}
