//! Watches the memory of the sandbox on hosts without a cgroup that limits it.

use std::time::Duration;

/// The interval between measurements.
const INTERVAL: Duration = Duration::from_millis(500);

/// Returns when all processes and files of the sandbox together exceed `limit` bytes. Never returns without a limit.
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
