//! Lets this node serve again after it was lost: ends what other nodes have ended in the store, and announces a new run.

use std::sync::Arc;

use casement_domain::browser::BrowserEngine as _;
use casement_domain::node::{Node, NodeRepository, NodeState, Nodes, OwnState};
use casement_domain::session::Sessions;
use casement_domain::{BrowserId, MonotonicClock as _};
use casement_http::Cluster;
use futures_util::{StreamExt as _, stream};
use tracing::{info, warn};

use super::Spares;
use crate::engines::BrowserEngines;
use crate::local_waiters::LocalWaiters;
use crate::system::System;

/// The maximum number of browsers that end at the same time.
const ENDS_AT_ONCE: usize = 8;

pub(crate) struct NodeReturn {
    pub(crate) own: OwnState,
    /// What the node announces.
    pub(crate) node: Node,
    pub(crate) nodes: Arc<dyn NodeRepository>,
    /// The node among others; `None`: it is alone.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) sessions: Sessions,
    pub(crate) engines: BrowserEngines,
    pub(crate) spares: Spares,
    pub(crate) local_waiters: LocalWaiters,
}

impl NodeReturn {
    /// Announces a new run, which begins with the sessions that have not ended. A node that drained goes on draining. After an error it must be repeated.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let sent_at = System.monotonic_now();
        let epoch = self.nodes.announce(&self.node).await?;
        if self.own.state() != NodeState::Serving {
            // The announcement ends a drain, as a restart does.
            Nodes::new(self.nodes.clone()).drain_own(self.own.id(), self.own.drain_left()).await?;
        }
        self.sessions.drop_ended().await?;
        // They have no row, so they cannot be distinguished from the browsers of ended sessions.
        self.spares.clear();
        let alive = self.engines.sandboxes().find_running().await?;
        let retained = self.sessions.adopt(&alive).await?;
        let strangers: Vec<_> = alive.into_iter().filter(|browser| !retained.contains(browser)).collect();
        info!(%epoch, browsers = retained.len(), ended = strangers.len(), "this node serves again");
        tokio::spawn(end_each(self.engines.clone(), strangers));
        if let Some(cluster) = &self.cluster {
            cluster.begin_run(epoch);
        }
        self.own.rejoin(epoch, sent_at);
        // Their tickets are gone: each caller enters the wait queue again, at its position.
        self.local_waiters.wake_all();
        self.spares.refill();
        Ok(())
    }
}

async fn end_each(engines: BrowserEngines, browsers: Vec<BrowserId>) {
    let ends = stream::iter(browsers).for_each_concurrent(ENDS_AT_ONCE, async |browser| {
        // The engine tries again by itself.
        if let Err(error) = engines.end(browser).await {
            warn!(%browser, %error, "cannot end a browser of a lost session");
        }
    });
    ends.await;
}
