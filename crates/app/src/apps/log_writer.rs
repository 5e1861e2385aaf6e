//! Keeps the lines that builds and calls write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::StoreError;
use casement_domain::deployment::{Line, LineStore, Lines, StoredLines, Subject};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// How long until the store is asked again that is away.
const AGAIN: Duration = Duration::from_secs(1);

/// The lines of one build or call, into the store.
pub(crate) struct LogWriter {
    store: Arc<dyn LineStore>,
    subject: Subject,
    /// The number in the store of the first line.
    first: u64,
    full: AtomicBool,
    stop: CancellationToken,
}

impl LogWriter {
    /// Of a call: the numbers are its own, so that one which is gone on with says nothing twice.
    pub(crate) fn of_call(store: Arc<dyn LineStore>, subject: Subject, stop: CancellationToken) -> Self {
        Self { store, subject, first: 0, full: AtomicBool::new(false), stop }
    }

    /// Of a build: one that begins again speaks on behind the one before.
    pub(crate) async fn of_build(store: Arc<dyn LineStore>, subject: Subject, stop: CancellationToken) -> Self {
        let mut lines = Self::of_call(store, subject, stop);
        lines.first = lines.kept().await.next;
        lines
    }

    async fn kept(&self) -> StoredLines {
        self.insist(|| self.store.kept(self.subject)).await.unwrap_or_default()
    }

    /// Asks until the store answers or the server stops. Who writes is held up meanwhile.
    async fn insist<T, F>(&self, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(StoreError::Unavailable { .. }) => {
                    self.stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await?;
                }
                Err(error) => {
                    warn!(subject = ?self.subject, %error, "lines cannot be kept");
                    return None;
                }
            }
        }
    }
}

#[async_trait]
impl Lines for LogWriter {
    async fn taken(&self) -> u64 {
        self.kept().await.next.saturating_sub(self.first)
    }

    async fn push(&self, mut lines: Vec<Line>) {
        if lines.is_empty() || self.full.load(Ordering::Relaxed) {
            return;
        }
        lines.iter_mut().for_each(|line| line.number += self.first);
        let kept = self.insist(|| self.store.append(self.subject, &lines)).await;
        if kept.is_some_and(|kept| kept.full) {
            self.full.store(true, Ordering::Relaxed);
        }
    }
}
