//! Removes the browsers of ended sessions: saves profiles and replays, ends sandboxes, deletes rows. It removes several
//! browsers at a time, because saving is slow.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::backoff::Backoff;
use casement_domain::session::Sessions;
use casement_domain::{BrowserId, MonotonicClock as _, MonotonicTime};
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Due, Job};
use crate::replays::CleanupSignal;
use crate::system::System;

/// The maximum number of browsers that are removed at the same time.
const MAX_PARALLEL: usize = 8;
/// The pauses between attempts to save what is left in one browser: while the object store is away, each attempt fails.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct BrowserCleanup {
    sessions: Sessions,
    ended: CleanupSignal,
    tasks: JoinSet<()>,
    browsers: HashMap<Id, BrowserId>,
    /// The earliest time of the next attempt for each browser.
    attempts: HashMap<BrowserId, (Backoff, MonotonicTime)>,
    due: Due,
    /// Something has happened since the last run.
    is_notified: bool,
}

impl BrowserCleanup {
    /// `ended` signals that a session has ended and its browser must be removed.
    pub(crate) fn new(sessions: Sessions, ended: CleanupSignal, due: Due) -> Self {
        let (tasks, browsers, attempts) = (JoinSet::new(), HashMap::new(), HashMap::new());
        Self { sessions, ended, tasks, browsers, attempts, due, is_notified: false }
    }

    /// Returns whether another attempt for the browser is due, and begins its pause.
    fn is_due(&mut self, browser: BrowserId) -> bool {
        let now = System.monotonic_now();
        let first = || (Backoff::new(FIRST_PAUSE, MAX_PAUSE), now);
        let (backoff, next) = self.attempts.entry(browser).or_insert_with(first);
        if now < *next {
            return false;
        }
        *next = now + backoff.next_pause().try_into().unwrap_or(time::Duration::MAX);
        true
    }

    fn is_full(&self) -> bool {
        self.browsers.len() >= MAX_PARALLEL
    }
}

#[async_trait]
impl Job for BrowserCleanup {
    fn name(&self) -> &'static str {
        "browser cleanup"
    }

    /// A run at this interval finds browsers whose notification was lost.
    fn interval(&self) -> Duration {
        Duration::from_secs(15)
    }

    /// Also due when a task of a full set has ended, and as long as browsers are pending.
    async fn wait_until_due(&mut self) {
        let is_pending = !self.attempts.is_empty();
        let mut again = pin!(tokio::time::sleep(FIRST_PAUSE));
        loop {
            tokio::select! {
                biased;
                Some(done) = self.tasks.join_next_with_id() => {
                    let id = done.map_or_else(|error| error.id(), |(id, ())| id);
                    let was_full = self.is_full();
                    self.browsers.remove(&id);
                    if was_full {
                        break;
                    }
                }
                () = self.ended.signalled() => break,
                () = self.due.begins() => break,
                () = &mut again, if is_pending => break,
            }
        }
        self.is_notified = true;
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        if !self.is_notified && self.attempts.is_empty() && !self.due.is_due() {
            return Ok(());
        }
        let pending = self.sessions.pending_cleanup().await?;
        self.is_notified = false;
        metrics::gauge!("casement_browsers_pending_removal").set(pending.len() as f64);
        self.attempts.retain(|id, _| pending.iter().any(|browser| browser.id == *id));
        for browser in pending {
            if self.is_full() {
                break;
            }
            if self.browsers.values().any(|other| *other == browser.id) {
                continue;
            }
            if !self.is_due(browser.id) {
                continue;
            }
            let (id, sessions) = (browser.id, self.sessions.clone());
            let task = self.tasks.spawn(async move {
                if let Err(error) = sessions.clean_up_browser(&browser).await {
                    debug!(browser = %browser.id, %error, "a browser cannot be removed yet");
                }
            });
            self.browsers.insert(task.id(), id);
        }
        Ok(())
    }
}
