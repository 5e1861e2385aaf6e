//! Removes the browsers of ended sessions: saves profiles and replays, ends sandboxes, deletes rows. It removes several
//! browsers at a time, because saving is slow.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::BrowserId;
use casement_domain::session::Sessions;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Job;
use crate::replays::CleanupSignal;

/// The maximum number of browsers that are removed at the same time.
const MAX_PARALLEL: usize = 8;

pub(crate) struct BrowserCleanup {
    sessions: Sessions,
    ended: CleanupSignal,
    tasks: JoinSet<()>,
    browsers: HashMap<Id, BrowserId>,
}

impl BrowserCleanup {
    /// `ended` signals that a session has ended and its browser must be removed.
    pub(crate) fn new(sessions: Sessions, ended: CleanupSignal) -> Self {
        Self { sessions, ended, tasks: JoinSet::new(), browsers: HashMap::new() }
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

    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Also due when a task of a full set has ended.
    async fn wait_until_due(&mut self) {
        loop {
            tokio::select! {
                biased;
                Some(done) = self.tasks.join_next_with_id() => {
                    let id = done.map_or_else(|error| error.id(), |(id, ())| id);
                    let was_full = self.is_full();
                    self.browsers.remove(&id);
                    if was_full {
                        return;
                    }
                }
                () = self.ended.signalled() => return,
            }
        }
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        for browser in self.sessions.pending_cleanup().await? {
            if self.is_full() {
                break;
            }
            if self.browsers.values().any(|other| *other == browser.id) {
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
