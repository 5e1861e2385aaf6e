//! Sessions and pools, and the reporting of their events.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use casement_domain::audit::NodeRun;
use casement_domain::browser::BrowserEngine;
use casement_domain::pool::{Leases, PoolDeps, Pools};
use casement_domain::session::{Activity, SessionDeps, Sessions};
use casement_domain::telemetry::TelemetryExporter;
use casement_domain::telemetry_destination::TelemetryDestinations;
use casement_domain::{NodeId, NodeRunId};
use casement_http::ConnectionRegistry;
use casement_telemetry::audit::{AuditWriter, BatchedAuditTrail, IntentSpool};
use casement_telemetry::destinations::{BothExporters, DestinationExporter, ExportDeps};
use casement_telemetry::events::{self, EventCollector, EventHubs, EventWriter};
use casement_telemetry::otlp::{self, ExportTask, OtlpExporter};
use casement_telemetry::traces::{RecordedTraces, TraceExport};
use tokio_util::sync::CancellationToken;

use super::infrastructure::Infrastructure;
use crate::connections::LoggedConnections;
use crate::engine_metrics::MeteredEngine;
use crate::jobs::{NodeWaker, PoolGauges, PoolWaker, Spares};
use crate::local_waiters::LocalWaiters;
use crate::profiles;
use crate::replays::{self, CleanupSignal};
use crate::settings::ServeSettings;
use crate::system::System;
use crate::telemetry_destinations::{self, EgressClient};

/// The settings of the collector, in errors.
const COLLECTOR: &str = "--otlp-endpoint and --otlp-header";
/// The timeout of writing the last records and events.
const WRITE: Duration = Duration::from_secs(10);
/// The timeout of exporting the last telemetry.
const EXPORT_TELEMETRY: Duration = Duration::from_secs(5);

pub(super) struct SessionServices {
    pub(super) sessions: Sessions,
    pub(super) pool_deps: PoolDeps,
    pub(super) pools: Pools,
    pub(super) leases: Leases,
    /// The engine, with metrics.
    pub(super) port: Arc<dyn BrowserEngine>,
    pub(super) trail: Arc<BatchedAuditTrail>,
    pub(super) connections: ConnectionRegistry,
    pub(super) logged: Arc<LoggedConnections>,
    pub(super) recorder: Arc<EventCollector>,
    pub(super) telemetry_destinations: TelemetryDestinations,
    pub(super) destination_exporter: DestinationExporter,
    pub(super) feed: EventHubs,
    pub(super) spares: Spares,
    pub(super) waker: PoolWaker,
    pub(super) node_waker: NodeWaker,
    pub(super) figures: PoolGauges,
    pub(super) local_waiters: LocalWaiters,
    pub(super) pending_cleanup: CleanupSignal,
    /// Cancelled to stop the background jobs.
    pub(super) stop: CancellationToken,
    /// Cancelled to stop reading events from agents, after the sessions have ended and their last events are read.
    pub(super) unfollowed: CancellationToken,
}

/// The writers that finish when the server stops.
pub(super) struct Writers {
    trail: AuditWriter,
    events: EventWriter,
    export: Option<ExportTask>,
    destinations: DestinationExporter,
    traces: Option<TraceExport>,
}

impl SessionServices {
    pub(super) fn new(
        infrastructure: &Infrastructure,
        settings: &ServeSettings,
        traces: Option<RecordedTraces>,
    ) -> anyhow::Result<(Self, Writers)> {
        let Infrastructure { node, rows, engine, engines, .. } = infrastructure;
        let run = NodeRun { node: *node, run: NodeRunId::mint(&System) };
        let spool = IntentSpool::open(infrastructure.data_dir.join("audit-intents.jsonl"), run);
        let spool = spool.context("cannot open the file of audit intents in the data directory")?;
        let (trail, trail_writer) = BatchedAuditTrail::start(rows.audit.clone(), Arc::new(System), run, Some(spool));
        let trail = Arc::new(trail);
        let connections = ConnectionRegistry::new();
        let logged = Arc::new(LoggedConnections(connections.clone()));
        let installation = settings.browsers.installation();
        let spares = if settings.grids.no_local_engine { 0 } else { settings.spares };
        let spares = Spares::new(spares, installation.memory.reserve_default());
        let (waker, local_waiters, pending_cleanup) =
            (PoolWaker::default(), LocalWaiters::default(), CleanupSignal::default());
        let system = Arc::new(System);
        let port: Arc<dyn BrowserEngine> = Arc::new(MeteredEngine(engines.clone()));
        let stop = CancellationToken::new();
        let collector = collector(settings, *node)?;
        let (exporter, export) = collector.as_ref().map(OtlpExporter::start).transpose().context(COLLECTOR)?.unzip();
        let traces = collector.zip(traces).map(|(collector, traces)| traces.export(&collector));
        let traces = traces.transpose().context(COLLECTOR)?;
        let (telemetry_destinations, to_destinations) = destination_export(infrastructure);
        let destinations: Arc<dyn TelemetryExporter> = Arc::new(to_destinations.clone());
        let exporter: Arc<dyn TelemetryExporter> = match exporter {
            Some(exporter) => Arc::new(BothExporters(Arc::new(exporter), destinations)),
            None => destinations,
        };
        let (store, tap, unfollowed) = (rows.telemetry.clone(), Arc::new(engine.clone()), CancellationToken::new());
        let (following, open) = (unfollowed.clone(), connections.clone());
        let open = Arc::new(move |session| open.count(session));
        let (recorder, feed, event_writer) =
            events::start((system.clone(), system.clone()), store, tap, open, Some(exporter), following);
        let recorder = Arc::new(recorder);
        let wake = Arc::new(waker.clone());
        let reports = (trail.clone() as _, recorder.clone() as _);
        let profiles = profiles::of_sessions(infrastructure.profiles.clone(), engines, reports, wake.clone());
        let sessions = Sessions::new(SessionDeps {
            node: *node,
            installation: installation.clone(),
            sessions: rows.sessions.clone(),
            browsers: rows.browsers.clone(),
            engine: port.clone(),
            engines: Arc::new(infrastructure.configured.clone()),
            extensions: rows.extensions.clone(),
            profiles: profiles.clone(),
            replays: replays::of_sessions(infrastructure.replays.clone(), engine, pending_cleanup.clone()),
            proxies: infrastructure.routing.clone(),
            spares: Arc::new(spares.clone()),
            peers: infrastructure.peers.clone(),
            connections: logged.clone(),
            pools: wake.clone(),
            activity: Activity::new(system.clone(), system.clone()),
            recorder: recorder.clone(),
            telemetry_destinations: rows.telemetry_destinations.clone(),
            clock: system.clone(),
            monotonic: system.clone(),
            ids: system.clone(),
        });
        let pool_deps = PoolDeps {
            node: *node,
            installation,
            pools: rows.pools.clone(),
            sessions: rows.sessions.clone(),
            wait_queue: rows.wait_queue.clone(),
            tickets: Arc::new(local_waiters.clone()),
            engine: port.clone(),
            extensions: rows.extensions.clone(),
            profiles,
            proxies: infrastructure.routing.clone(),
            wake,
            clock: system.clone(),
            monotonic: system.clone(),
            ids: system,
            max_pools: settings.limits.max_pools,
        };
        let pools = Pools::new(pool_deps.clone(), sessions.clone());
        let leases = Leases::new(pool_deps.clone(), sessions.clone());
        let services = Self {
            sessions,
            pool_deps,
            pools,
            leases,
            port,
            trail,
            connections,
            logged,
            recorder,
            telemetry_destinations,
            destination_exporter: to_destinations.clone(),
            feed,
            spares,
            waker,
            node_waker: NodeWaker::default(),
            figures: PoolGauges::default(),
            local_waiters,
            pending_cleanup,
            stop,
            unfollowed,
        };
        Ok((
            services,
            Writers { trail: trail_writer, events: event_writer, export, destinations: to_destinations, traces },
        ))
    }
}

impl Writers {
    pub(super) async fn finish(self) {
        self.trail.finish(WRITE).await;
        self.events.finish(WRITE).await;
        let export = async {
            if let Some(export) = self.export {
                export.finish(EXPORT_TELEMETRY).await;
            }
        };
        tokio::join!(export, self.destinations.finish(EXPORT_TELEMETRY));
        if let Some(traces) = self.traces {
            traces.finish(EXPORT_TELEMETRY).await;
        }
    }
}

/// Returns the telemetry destinations and the export to them.
fn destination_export(infrastructure: &Infrastructure) -> (TelemetryDestinations, DestinationExporter) {
    let Infrastructure { node, rows, keys, sandbox_egress, .. } = infrastructure;
    let client = EgressClient(sandbox_egress.egress());
    let destinations = telemetry_destinations::use_cases(rows.telemetry_destinations.clone(), keys, client.clone());
    let exporter = DestinationExporter::start(ExportDeps {
        node: *node,
        version: env!("CARGO_PKG_VERSION"),
        destinations: destinations.clone(),
        store: rows.telemetry.clone(),
        client: Arc::new(client),
        clock: Arc::new(System),
    });
    (destinations, exporter)
}

/// Returns the destination of telemetry and traces, if one is configured.
fn collector(settings: &ServeSettings, node: NodeId) -> anyhow::Result<Option<otlp::Settings>> {
    let Some(endpoint) = &settings.otlp_endpoint else {
        anyhow::ensure!(settings.otlp_headers.is_empty(), "--otlp-header: there is no --otlp-endpoint");
        anyhow::ensure!(settings.otlp_traces.is_none(), "--otlp-traces: there is no --otlp-endpoint");
        return Ok(None);
    };
    let (headers, version) = (&settings.otlp_headers, env!("CARGO_PKG_VERSION"));
    otlp::Settings::new(endpoint, headers, &node.to_string(), version).map(Some).context(COLLECTOR)
}
