//! Waits for a condition with a deadline that only a broken program reaches.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// The timeout of [`until`] and [`try_until`].
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The intervals between two checks of a condition: the first one, and the longest one.
pub(crate) const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Waits up to a minute until a condition holds.
///
/// # Panics
/// When it does not hold in time.
pub async fn until(what: &str, condition: impl FnMut() -> bool) {
    try_until(what, condition).await.unwrap_or_else(|error| panic!("{error}"));
}

/// Waits up to a minute until a condition holds.
///
/// # Errors
/// When it does not hold in time.
pub async fn try_until(what: &str, mut condition: impl FnMut() -> bool) -> anyhow::Result<()> {
    try_until_async(what, TEST_TIMEOUT, async || condition()).await
}

/// Waits until an asynchronous condition holds.
///
/// # Errors
/// When it does not hold within the limit.
pub async fn try_until_async(
    what: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    let mut interval = POLL_INTERVALS.0;
    while !condition().await {
        ensure!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(interval).await;
        interval = next_interval(interval);
    }
    Ok(())
}

/// Returns the interval after this one: a check may be a request or a program, which takes processor time from what the
/// test waits for.
pub(crate) fn next_interval(interval: Duration) -> Duration {
    (interval * 3 / 2).min(POLL_INTERVALS.1)
}

/// Awaits a future, at most for the limit.
///
/// # Errors
/// When the future is not ready in time.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(limit, future).await.with_context(|| format!("not within {limit:?}"))
}
