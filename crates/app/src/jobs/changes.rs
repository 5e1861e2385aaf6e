//! Applies the changes of all nodes to what this node holds in memory.

use casement_domain::NodeId;
use casement_domain::audit_destination::AuditExportWaker as _;
use casement_domain::node::UnreachableNodes;
use casement_domain::session::{CleanupWake as _, PoolWake as _, Sessions};
use casement_http::Cluster;
use casement_postgres::{Change, RecentKeys};
use casement_telemetry::audit_export::ChangeSignal;
use tracing::warn;

use super::{DueWorkBoard, PoolWaker};
use crate::replays::CleanupSignal;

/// What this node holds in memory that another node may change.
#[derive(Clone)]
pub(crate) struct ChangeHandler {
    pub(crate) node: NodeId,
    pub(crate) recent_keys: RecentKeys,
    pub(crate) pools: PoolWaker,
    pub(crate) sessions: Sessions,
    pub(crate) pending_cleanup: CleanupSignal,
    pub(crate) audit_destinations: ChangeSignal,
    /// This node among others, if it is reached by them.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) unreachable: UnreachableNodes,
    pub(crate) due_work: DueWorkBoard,
}

impl ChangeHandler {
    /// Applies a change.
    pub(crate) fn apply(&self, change: Change) {
        match change {
            Change::Keys => self.recent_keys.forget(),
            Change::Pool(pool) => self.pools.wake(pool),
            Change::EndingBrowsers(node) if node == self.node => self.pending_cleanup.wake(),
            Change::EndingBrowsers(_) => {}
            Change::SessionEnded(session) => {
                let sessions = self.sessions.clone();
                tokio::spawn(async move {
                    // The cleanup of its browser repeats it.
                    if let Err(error) = sessions.ended_elsewhere(session).await {
                        warn!(%session, %error, "cannot release a session that another node has ended");
                    }
                });
            }
            Change::AuditDestinations => self.audit_destinations.wake(),
        }
    }

    /// Checks all pools, because a node that came, was lost or changed its state changes the shares of the others. Ends the
    /// requests that wait for a lost node.
    pub(crate) fn nodes_changed(&self) {
        self.unreachable.forget_all();
        self.due_work.read_soon();
        self.pools.wake_all();
        if let Some(cluster) = self.cluster.clone() {
            tokio::spawn(async move {
                // The next change repeats it.
                if let Err(error) = cluster.nodes_changed().await {
                    warn!(%error, "cannot read the nodes after a change");
                }
            });
        }
    }

    /// Treats everything as changed, because notifications may have been lost. The cleanup finds the sessions that were
    /// ended.
    pub(crate) fn apply_all(&self) {
        self.recent_keys.forget();
        self.nodes_changed();
        self.pending_cleanup.wake();
        self.audit_destinations.wake();
    }
}
