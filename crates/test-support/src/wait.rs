//! Waits for a condition with a deadline that only a broken program reaches.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// The timeout of [`until`] and [`try_until`].
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval between the first two checks of a condition.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);
/// The longest interval of a wait that has just begun, and of any wait.
const LONGEST_INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

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
    let mut checks = Checks::until(limit);
    while !condition().await {
        let interval = checks.next().with_context(|| format!("not within {limit:?}: {what}"))?;
        tokio::time::sleep(interval).await;
    }
    Ok(())
}

/// The intervals between the checks of a condition. They grow with the wait, up to an eighth of it: a check may be a request
/// or a program, which takes processor time from what the test waits for.
pub(crate) struct Checks {
    began: Instant,
    limit: Duration,
    interval: Duration,
}

impl Checks {
    pub(crate) fn until(limit: Duration) -> Self {
        Self { began: Instant::now(), limit, interval: FIRST_INTERVAL }
    }
}

impl Iterator for Checks {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let waited = self.began.elapsed();
        let (early, longest) = LONGEST_INTERVALS;
        let interval = self.interval;
        self.interval = (interval * 3 / 2).min((waited / 8).clamp(early, longest));
        (waited < self.limit).then_some(interval)
    }
}

/// Awaits a future, at most for the limit.
///
/// # Errors
/// When the future is not ready in time.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(limit, future).await.with_context(|| format!("not within {limit:?}"))
}
