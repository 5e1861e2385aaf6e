//! Stores the log lines of builds and calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::StoreError;
use casement_domain::deployment::{Line, LineStore, Lines, StoredLines, Subject};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The pause before a request to an unavailable store is repeated.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// Writes the log lines of one build or call to the store.
pub(crate) struct LogWriter {
    store: Arc<dyn LineStore>,
    subject: Subject,
    /// The number under which the store has the first line of this writer.
    first: u64,
    full: AtomicBool,
    stop: CancellationToken,
}

impl LogWriter {
    /// Creates the writer of a call. It uses the line numbers of the call, so that lines of an adopted call are not
    /// stored twice.
    pub(crate) fn of_call(store: Arc<dyn LineStore>, subject: Subject, stop: CancellationToken) -> Self {
        Self { store, subject, first: 0, full: AtomicBool::new(false), stop }
    }

    /// Creates the writer of a build. It appends to the lines of a previous attempt.
    pub(crate) async fn of_build(store: Arc<dyn LineStore>, subject: Subject, stop: CancellationToken) -> Self {
        let mut lines = Self::of_call(store, subject, stop);
        lines.first = lines.stored().await.next;
        lines
    }

    async fn stored(&self) -> StoredLines {
        self.retry(|| self.store.stored(self.subject)).await.unwrap_or_default()
    }

    /// Retries until the store answers or the server stops. The writer blocks until then.
    async fn retry<T, F>(&self, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(StoreError::Unavailable { .. }) => {
                    self.stop.run_until_cancelled(tokio::time::sleep(RETRY_BACKOFF)).await?;
                }
                Err(error) => {
                    warn!(subject = %self.subject, %error, "cannot store log lines");
                    return None;
                }
            }
        }
    }
}

#[async_trait]
impl Lines for LogWriter {
    async fn taken(&self) -> u64 {
        self.stored().await.next.saturating_sub(self.first)
    }

    async fn push(&self, mut lines: Vec<Line>) {
        if lines.is_empty() || self.full.load(Ordering::Relaxed) {
            return;
        }
        lines.iter_mut().for_each(|line| line.number += self.first);
        let appended = self.retry(|| self.store.append(self.subject, &lines)).await;
        if appended.is_some_and(|appended| appended.full) {
            self.full.store(true, Ordering::Relaxed);
        }
    }
}
