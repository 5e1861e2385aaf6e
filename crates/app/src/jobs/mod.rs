//! The background jobs of a node, one file each. `serve/background.rs` is their registry, [`supervisor`] runs them.

mod app_retention;
mod apps;
mod audit;
mod audit_export;
mod blob_watch;
mod browser_cleanup;
mod browser_events;
mod certificate;
mod changes;
mod disk_watch;
mod drain;
mod due_work;
mod heartbeat;
mod late_invocations;
mod logins;
mod lost_browsers;
mod lost_nodes;
mod metrics_upkeep;
mod node_return;
mod periodic;
mod pool_gauges;
mod pool_metrics;
mod pools;
mod proxy_checks;
mod reconcile;
mod spares;
mod starts;
mod supervisor;
mod ticket_notifications;

use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

pub(crate) use app_retention::{AppRetention, MaxAges};
pub(crate) use apps::{AppJobs, AppsDue, AwaitedCalls};
pub(crate) use audit::AuditCompleteness;
pub(crate) use audit_export::AuditExportJob;
pub(crate) use blob_watch::BlobWatch;
pub(crate) use browser_cleanup::BrowserCleanup;
pub(crate) use browser_events::BrowserEvents;
pub(crate) use certificate::{CertificateReload, reload as log_reload};
pub(crate) use changes::ChangeHandler;
pub(crate) use disk_watch::DiskJob;
pub(crate) use drain::Drain;
pub(crate) use due_work::{Due, DueWorkBoard, DueWorkJob};
pub(crate) use heartbeat::{Heartbeat, NodeWaker, StateChanges};
pub(crate) use late_invocations::LateInvocations;
pub(crate) use logins::{AuthChanges, AuthNotifications, LoginChecks, LoginFlows};
pub(crate) use lost_browsers::LostBrowsers;
pub(crate) use lost_nodes::LostNodes;
pub(crate) use metrics_upkeep::MetricsUpkeep;
pub(crate) use node_return::NodeReturn;
pub(crate) use periodic::Periodic;
pub(crate) use pool_gauges::PoolGauges;
pub(crate) use pool_metrics::PoolMetrics;
pub(crate) use pools::{PoolFillJob, PoolWaker};
pub(crate) use proxy_checks::ProxyChecks;
pub(crate) use reconcile::Reconcile;
pub(crate) use spares::{SpareFilling, Spares};
pub(crate) use starts::StartSlots;
pub(crate) use supervisor::spawn;
pub(crate) use ticket_notifications::TicketNotifications;

/// Work that a node repeats in the background.
#[async_trait]
pub(crate) trait Job: Send + 'static {
    /// The name in logs.
    fn name(&self) -> &'static str;

    /// The time from the beginning of one run to the next.
    fn interval(&self) -> Duration;

    /// Resolves when the next run is due before the interval is over. Must be cancel safe. By default never.
    async fn wait_until_due(&mut self) {
        std::future::pending().await
    }

    /// Does the work once. A job that handles events returns when `stop` is cancelled; others may finish their run.
    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()>;
}
