//! Drains this node: ends the browsers that nobody uses, at the deadline the sessions too, and reports that it is empty.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::browser::BrowserEngine as _;
use casement_domain::node::{NodeState, Nodes, OwnState};
use casement_domain::session::Sessions;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{AppJobs, Job, NodeWaker, Spares, StateChanges};
use crate::engines::BrowserEngines;

pub(crate) struct Drain {
    pub(crate) own: OwnState,
    pub(crate) nodes: Nodes,
    pub(crate) sessions: Sessions,
    pub(crate) engine: BrowserEngines,
    pub(crate) spares: Spares,
    pub(crate) apps: AppJobs,
    pub(crate) waker: NodeWaker,
    pub(crate) changes: StateChanges,
    /// The time that a drain without a deadline gives sessions; `None`: until they end by themselves.
    pub(crate) default_deadline: Option<time::Duration>,
    /// Whether spares are missing because of the drain.
    pub(crate) ended_spares: bool,
}

#[async_trait]
impl Job for Drain {
    fn name(&self) -> &'static str {
        "drain"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn wait_until_due(&mut self) {
        self.changes.next().await;
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        match self.own.state() {
            NodeState::Serving => {
                if std::mem::take(&mut self.ended_spares) {
                    self.spares.refill();
                }
                return Ok(());
            }
            NodeState::Draining | NodeState::Drained => {
                self.ended_spares = true;
                self.end_spares().await;
            }
        }
        if self.own.state() == NodeState::Drained {
            return Ok(());
        }
        if let Some(deadline) = self.default_deadline.filter(|_| self.own.drains_without_deadline()) {
            self.nodes.drain_own(self.own.id(), Some(deadline)).await?;
            self.waker.read_soon();
        }
        self.sessions.discard_unused().await?;
        if self.own.is_drain_over() {
            self.sessions.end_drained().await?;
            self.apps.end_awaited_calls().await;
        }
        if self.nodes.finish_drain(&self.own).await? {
            info!("this node is drained");
            self.waker.read_soon();
        }
        Ok(())
    }
}

impl Drain {
    async fn end_spares(&self) {
        for browser in self.spares.clear() {
            if let Err(error) = self.engine.end(browser).await {
                debug!(%browser, %error, "cannot end a spare browser yet");
            }
        }
    }
}
