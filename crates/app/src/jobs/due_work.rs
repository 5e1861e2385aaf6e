//! Reads regularly what the other background jobs may have to do, in one statement. Jobs whose work is not there do not ask
//! the database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::audit::NodeRun;
use casement_postgres::{DueWork, PgDueWork};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::Job;

/// What the database had to do when it was read last. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct DueWorkBoard {
    readings: watch::Sender<DueWork>,
    stale: Arc<Notify>,
}

impl DueWorkBoard {
    /// Reads again at once, because the nodes have changed.
    pub(crate) fn read_soon(&self) {
        self.stale.notify_one();
    }

    /// Returns the view of a job on the work that `is_due` tells apart.
    pub(crate) fn view(&self, is_due: fn(&DueWork) -> bool) -> Due {
        Due { readings: self.readings.subscribe(), is_due, was_due: false }
    }
}

/// Whether there is work for one job.
#[derive(Clone)]
pub(crate) struct Due {
    readings: watch::Receiver<DueWork>,
    is_due: fn(&DueWork) -> bool,
    was_due: bool,
}

impl Due {
    /// Whether the last reading has found work.
    pub(crate) fn is_due(&self) -> bool {
        (self.is_due)(&self.readings.borrow())
    }

    /// Resolves when a reading finds work and the one before did not. Cancel safe.
    pub(crate) async fn begins(&mut self) {
        loop {
            let (is_due, was_due) = ((self.is_due)(&self.readings.borrow_and_update()), self.was_due);
            self.was_due = is_due;
            if is_due && !was_due {
                return;
            }
            if self.readings.changed().await.is_err() {
                // Nothing is read any more, because the server stops.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Resolves when work appears, and repeatedly after the interval while there is some. Cancel safe.
    pub(crate) async fn next(&mut self, interval: Duration) {
        loop {
            if tokio::time::timeout(interval, self.begins()).await.is_ok() || self.is_due() {
                return;
            }
        }
    }
}

pub(crate) struct DueWorkJob {
    pub(crate) rows: PgDueWork,
    pub(crate) run: NodeRun,
    pub(crate) board: DueWorkBoard,
}

#[async_trait]
impl Job for DueWorkJob {
    fn name(&self) -> &'static str {
        "due work"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(15)
    }

    async fn wait_until_due(&mut self) {
        self.board.stale.notified().await;
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        self.board.readings.send_replace(self.rows.read(self.run).await?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_job_runs_when_work_appears_and_at_its_interval_while_there_is_some() {
        let board = DueWorkBoard::default();
        let mut due = board.view(|work| work.builds);
        assert!(due.begins().now_or_never().is_none());
        board.readings.send_replace(DueWork { proxies: true, ..DueWork::default() });
        assert!(due.begins().now_or_never().is_none() && !due.is_due(), "the work of another job");
        board.readings.send_replace(DueWork { builds: true, ..DueWork::default() });
        assert!(due.begins().now_or_never().is_some() && due.is_due());
        board.readings.send_replace(DueWork { builds: true, ..DueWork::default() });
        assert!(due.begins().now_or_never().is_none(), "it is the same work");
        due.next(Duration::from_secs(30)).await;
        board.readings.send_replace(DueWork::default());
        assert!(tokio::time::timeout(Duration::from_secs(90), due.next(Duration::from_secs(30))).await.is_err());
    }
}
