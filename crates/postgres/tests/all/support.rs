//! What several tests need.

use std::time::{Duration, Instant};

/// What a test gives back: any error fails it, with its text.
pub(crate) type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Asks until the answer is yes.
///
/// # Errors
/// With `what`, when half a minute has passed without.
pub(crate) async fn until(what: &str, mut asked: impl AsyncFnMut() -> bool) -> TestResult {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !asked().await {
        if Instant::now() > deadline {
            return Err(format!("still not: {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
