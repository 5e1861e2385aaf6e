//! Runs background jobs: repeats each at its interval, and with a backoff after a failure or a panic.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::anyhow;
use casement_domain::backoff::Backoff;
use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Job;
use crate::causes::with_causes;

const FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// Runs the job in a task of its own until `stop`. A run in progress is not aborted.
pub(crate) fn spawn(job: impl Job, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(supervise(job, stop))
}

async fn supervise(mut job: impl Job, stop: CancellationToken) {
    let mut interval = tokio::time::interval(job.interval());
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut backoff = Backoff::new(FIRST_BACKOFF, job.interval().max(FIRST_BACKOFF));
    let mut failing = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = interval.tick() => {}
            () = job.wait_until_due() => {}
        }
        match run(&mut job, &stop).await {
            Ok(()) => {
                if std::mem::take(&mut failing) {
                    info!(job = job.name(), "a background job succeeds again");
                }
                backoff.reset();
            }
            // What a stop cuts off is no failure.
            Err(error) if stop.is_cancelled() => {
                return debug!(job = job.name(), error = with_causes(&error), "the stop ended a background job");
            }
            Err(error) => {
                let pause = backoff.next_pause();
                let (job, error, retry_in_ms) = (job.name(), with_causes(&error), pause.as_millis());
                // Warns about the first failure in a row only.
                if std::mem::replace(&mut failing, true) {
                    debug!(job, error, retry_in_ms, "a background job still fails");
                } else {
                    warn!(job, error, retry_in_ms, "a background job failed");
                }
                // `wait_until_due` does not shorten the backoff.
                stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                interval.reset_immediately();
            }
        }
    }
}

async fn run(job: &mut impl Job, stop: &CancellationToken) -> anyhow::Result<()> {
    let result = AssertUnwindSafe(job.run(stop)).catch_unwind().await;
    result.unwrap_or_else(|_| Err(anyhow!("it panicked; the message is in the log")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    #[derive(Clone, Default)]
    struct Counted {
        runs: Arc<AtomicU32>,
        done: Arc<Notify>,
        wake: Arc<Notify>,
        panics_first: bool,
        fails_first: bool,
    }

    #[async_trait]
    impl Job for Counted {
        fn name(&self) -> &'static str {
            "counted"
        }

        fn interval(&self) -> Duration {
            Duration::from_secs(3600)
        }

        async fn wait_until_due(&mut self) {
            self.wake.notified().await;
        }

        async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
            let before = self.runs.fetch_add(1, Ordering::Relaxed);
            self.done.notify_one();
            assert!(!self.panics_first || before > 0, "the first run panics");
            anyhow::ensure!(!self.fails_first || before > 0, "the first run fails");
            Ok(())
        }
    }

    async fn runs(job: Counted, expected: u32) {
        let stop = CancellationToken::new();
        let task = spawn(job.clone(), stop.clone());
        let enough = async {
            while job.runs.load(Ordering::Relaxed) < expected {
                job.done.notified().await;
            }
        };
        timeout(TEST_TIMEOUT, enough).await.expect("the job runs");
        stop.cancel();
        timeout(TEST_TIMEOUT, task).await.expect("the job stops").expect("the supervisor does not panic");
    }

    #[tokio::test]
    async fn a_job_runs_at_once_and_again_when_it_is_due() {
        let job = Counted::default();
        runs(job.clone(), 1).await;
        job.wake.notify_one();
        runs(job, 3).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_fails_runs_again_before_its_interval_is_over() {
        runs(Counted { fails_first: true, ..Counted::default() }, 2).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_panics_runs_again() {
        runs(Counted { panics_first: true, ..Counted::default() }, 2).await;
    }
}
