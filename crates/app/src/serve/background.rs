//! The registry of the background jobs, which run from the start of the server to its stop.

use std::sync::Arc;

use casement_chromium::EngineEvent;
use casement_domain::PoolId;
use casement_domain::node::{NodeWatch, Nodes};
use casement_domain::pool::{PeerRequests, PoolFiller};
use casement_postgres::{DueWork, PgBlobStore, PgDueWork};
use casement_telemetry::audit_export::AuditExporter;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::infrastructure::Infrastructure;
use super::sessions::SessionServices;
use super::use_cases::UseCases;
use crate::apps::ChangeFeed;
use crate::engines::GridSweep;
use crate::jobs::{
    AppJobs, AuditCompleteness, AuditExportJob, AuthNotifications, BlobWatch, BrowserCleanup, BrowserEvents,
    ChangeHandler, DiskJob, Drain, Due, DueWorkJob, Heartbeat, Job, LoginChecks, LoginFlows, LostBrowsers, LostNodes,
    MetricsUpkeep, NodeReturn, PoolFillJob, PoolMetrics, ProxyChecks, Reconcile, SpareFilling, StartSlots,
    TicketNotifications, spawn,
};
use crate::proxies;
use crate::settings::ServeSettings;
use crate::store::Store;
use crate::system::System;
use crate::ticket_reports::TicketReports;

/// The event sources of the jobs.
pub(super) struct Events {
    pub(super) browsers: mpsc::UnboundedReceiver<EngineEvent>,
    pub(super) failed_requests: mpsc::Receiver<proxies::FailedRequest>,
}

/// The jobs that the stop of the server awaits or ends.
pub(super) struct BackgroundJobs {
    pub(super) apps: AppJobs,
    pub(super) change_feed: ChangeFeed,
    pub(super) browser_cleanup: JoinHandle<()>,
    /// Ends the heartbeat after the sessions have ended, so that no other node marks this node as lost before.
    pub(super) heartbeat: CancellationToken,
}

impl BackgroundJobs {
    /// Spawns every job. `checked_pools` receives each pool that the pool job has checked.
    pub(super) fn spawn(
        infrastructure: &Infrastructure,
        services: &SessionServices,
        cases: UseCases,
        events: Events,
        checked_pools: mpsc::UnboundedSender<PoolId>,
        (settings, store, metrics): (&ServeSettings, &Store, PrometheusHandle),
    ) -> Self {
        let jobs = Jobs { infrastructure, services, settings, store };
        let heartbeat = CancellationToken::new();
        jobs.heartbeat(heartbeat.clone());
        let (rows, run) = (PgDueWork::new(store.database.clone()), services.trail.run());
        jobs.start(DueWorkJob { rows, run, board: infrastructure.due_work.clone() });
        jobs.sessions(&cases);
        jobs.browsers(events, checked_pools);
        jobs.periodic(&cases);
        let (others, abandoned) = (jobs.due(|work| work.other_nodes), jobs.due(|work| work.abandoned_calls));
        jobs.start(AuditCompleteness::new(services.trail.clone(), others, abandoned));
        jobs.logins(&cases);
        let export = cases.audit_export.deps;
        jobs.start(AuditExportJob { interval: export.interval, exporter: AuditExporter::new(export) });
        jobs.start(ProxyChecks { proxies: cases.proxies, due: jobs.due(|work| work.proxies) });
        let (blobs, mark) = (&infrastructure.blob_store, infrastructure.blob_mark);
        let blob_rows = PgBlobStore::new(store.database.clone());
        if let Some(watch) = BlobWatch::new(blobs, blob_rows, infrastructure.data_dir.clone(), mark) {
            jobs.start(watch);
        }
        jobs.start(DiskJob::new(infrastructure.disk.clone(), infrastructure.rows.storage_usage.clone()));
        let upkeep = MetricsUpkeep {
            metrics,
            sandbox_egress: infrastructure.sandbox_egress.clone(),
            spares: services.spares.clone(),
            own: infrastructure.own.clone(),
            max_sessions: infrastructure.description.max_sessions,
        };
        spawn(upkeep, CancellationToken::new());
        let cleanup = BrowserCleanup::new(
            services.sessions.clone(),
            services.pending_cleanup.clone(),
            jobs.due(|work| work.ending_browsers),
        );
        let browser_cleanup = jobs.start(cleanup);
        let change_feed = cases.apps.change_feed.clone();
        let apps = cases.apps.spawn(&infrastructure.notifications);
        jobs.drain(apps.clone());
        Self { apps, change_feed, browser_cleanup, heartbeat }
    }
}

pub(super) struct Jobs<'a> {
    pub(super) infrastructure: &'a Infrastructure,
    pub(super) services: &'a SessionServices,
    pub(super) settings: &'a ServeSettings,
    store: &'a Store,
}

impl Jobs<'_> {
    pub(super) fn start(&self, job: impl Job) -> JoinHandle<()> {
        spawn(job, self.services.stop.child_token())
    }

    /// Returns the view of a job on what there is to do.
    fn due(&self, is_due: fn(&DueWork) -> bool) -> Due {
        self.infrastructure.due_work.view(is_due)
    }

    fn filler(&self) -> PoolFiller {
        let SessionServices { pool_deps, sessions, .. } = self.services;
        PoolFiller::new(pool_deps.clone(), self.infrastructure.rows.browsers.clone(), sessions.clone())
    }

    fn heartbeat(&self, stop: CancellationToken) {
        let Infrastructure { own, description, cluster, rows, engines, .. } = self.infrastructure;
        let SessionServices { sessions, spares, local_waiters, node_waker, .. } = self.services;
        let (own, nodes, waker) = (own.clone(), rows.nodes.clone(), node_waker.clone());
        let node_return = NodeReturn {
            own: own.clone(),
            node: description.clone(),
            nodes: nodes.clone(),
            cluster: cluster.clone(),
            sessions: sessions.clone(),
            engines: engines.clone(),
            spares: spares.clone(),
            local_waiters: local_waiters.clone(),
        };
        spawn(Heartbeat { own, nodes, waker, node_return }, stop);
    }

    fn drain(&self, apps: AppJobs) {
        let Infrastructure { own, rows, engines, .. } = self.infrastructure;
        let SessionServices { sessions, spares, node_waker, .. } = self.services;
        self.start(Drain {
            own: own.clone(),
            nodes: Nodes::new(rows.nodes.clone()),
            sessions: sessions.clone(),
            engine: engines.clone(),
            spares: spares.clone(),
            apps,
            waker: node_waker.clone(),
            changes: node_waker.changes(),
            default_deadline: self.settings.node.drain_deadline(),
            ended_spares: false,
        });
    }

    fn sessions(&self, cases: &UseCases) {
        let Infrastructure { node, rows, .. } = self.infrastructure;
        let SessionServices { sessions, leases, .. } = self.services;
        let (sessions, leases, wait_queue) = (sessions.clone(), leases.clone(), rows.wait_queue.clone());
        let requests = PeerRequests::new(leases.clone());
        let tickets = TicketNotifications {
            node: *node,
            node_waker: self.services.node_waker.clone(),
            notifications: self.infrastructure.notifications.clone(),
            wait_queue: wait_queue.clone(),
            leases: leases.clone(),
            requests: requests.clone(),
            changes: ChangeHandler {
                node: *node,
                recent_keys: rows.recent_keys.clone(),
                pools: self.services.waker.clone(),
                sessions: sessions.clone(),
                pending_cleanup: self.services.pending_cleanup.clone(),
                audit_destinations: cases.audit_export.deps.changed.clone(),
                cluster: self.infrastructure.cluster.clone(),
                unreachable: self.infrastructure.unreachable.clone(),
                due_work: self.infrastructure.due_work.clone(),
            },
        };
        let reports = TicketReports {
            node: *node,
            requests,
            peers: self.infrastructure.peers.clone(),
            database: self.store.database.clone(),
            runtime: Handle::current(),
        };
        reports.begin();
        self.start(LostNodes {
            others: NodeWatch::new(*node, rows.nodes.clone(), Arc::new(System)),
            nodes: rows.nodes.clone(),
            wait_queue: wait_queue.clone(),
            sessions: sessions.clone(),
            runs: cases.apps.runs.clone(),
            due: self.due(|work| work.other_nodes),
        });
        self.start(Reconcile {
            sessions: sessions.clone(),
            filler: self.filler(),
            tickets: tickets.clone(),
            due_sessions: self.due(|work| work.sessions),
            due_tickets: self.due(|work| work.tickets),
        });
        self.start(PoolMetrics { sessions, pools: rows.pools.clone(), figures: self.services.figures.clone() });
        self.start(tickets);
    }

    fn browsers(&self, events: Events, checked_pools: mpsc::UnboundedSender<PoolId>) {
        let SessionServices { sessions, spares, port, stop, .. } = self.services;
        let Events { browsers: events, failed_requests } = events;
        let (engine, spares, slots) = (self.infrastructure.engine.clone(), spares.clone(), StartSlots::per_core());
        let reporting = proxies::report_failed_requests(failed_requests, sessions.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(reporting));
        // Not stopped with the others, because browsers may also end while the server stops.
        spawn(
            BrowserEvents { engine, events, sessions: sessions.clone(), spares: spares.clone() },
            CancellationToken::new(),
        );
        self.start(PoolFillJob {
            own: self.infrastructure.own.clone(),
            node_waker: self.services.node_waker.clone(),
            filler: self.filler(),
            pools: self.infrastructure.rows.pools.clone(),
            sessions: sessions.clone(),
            peers: self.infrastructure.peers.clone(),
            waker: self.services.waker.clone(),
            slots: slots.clone(),
            figures: self.services.figures.clone(),
            checked_pools,
        });
        let grids = self.infrastructure.engines.grids();
        for engine in grids.all() {
            self.start(LostBrowsers { engine: engine.clone(), sessions: sessions.clone() });
        }
        self.start(GridSweep { grids: grids.clone() });
        let own = self.infrastructure.own.clone();
        self.start(SpareFilling { own, spares, engine: port.clone(), slots });
    }

    fn logins(&self, cases: &UseCases) {
        let UseCases { logins, auth_changes, .. } = cases;
        self.start(AuthNotifications {
            changes: auth_changes.clone(),
            notifications: self.infrastructure.notifications.clone(),
        });
        let (own, placement) = (self.infrastructure.own.clone(), self.infrastructure.placement(self.store));
        self.start(LoginFlows::new(
            own,
            placement,
            logins.clone(),
            auth_changes.clone(),
            self.due(|work| work.login_flows),
        ));
        self.start(LoginChecks { runner: logins.clone(), due: self.due(|work| work.auth_connections) });
    }
}
