//! The use cases of the HTTP API.

use std::sync::Arc;

use casement_domain::access::Access;
use casement_domain::api_key::KeyAdministration;
use casement_domain::audit::AuditLogs;
use casement_domain::auth_connection::{AuthConnectionDeps, AuthConnections, FlowRunner, RunnerDeps};
use casement_domain::computer::Computers;
use casement_domain::credential::Credentials;
use casement_domain::credential_provider::CredentialProviders;
use casement_domain::curl::Curl;
use casement_domain::extension::Extensions;
use casement_domain::fs::Files;
use casement_domain::node::Nodes;
use casement_domain::pool::PeerRequests;
use casement_domain::process::Processes;
use casement_domain::profile::Profiles;
use casement_domain::project::Projects;
use casement_domain::proxy::Proxies;
use casement_domain::replay::Replays;
use casement_domain::script::Scripts;
use casement_domain::session_log::SessionLogs;
use casement_domain::sign_in::SignIns;
use casement_domain::telemetry::TelemetryEvents;
use casement_domain::webmcp::PageTools;
use casement_http::{CallTracing, Services};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::runtime::Handle;

use super::infrastructure::Infrastructure;
use super::sessions::SessionServices;
use crate::apps::{AppServices, Apps};
use crate::audit_export::AuditExport;
use crate::call_traces::CallTraces;
use crate::data_dir::DataDir;
use crate::engines::EngineFiles;
use crate::jobs::{AppsDue, AuthChanges, PoolGauges};
use crate::node_health::NodeHealth;
use crate::settings::ServeSettings;
use crate::store::Store;
use crate::system::System;
use crate::web_store::ChromeWebStore;
use crate::{credential_providers, credentials, extensions, logins, profiles, proxies, shared_secret};

/// The use cases that background jobs need too.
pub(super) struct UseCases {
    pub(super) apps: Apps,
    pub(super) extensions: Extensions,
    pub(super) profiles: Profiles,
    pub(super) proxies: Proxies,
    pub(super) logins: FlowRunner,
    pub(super) auth_changes: AuthChanges,
    pub(super) audit_export: AuditExport,
    auth_connections: AuthConnections,
    credentials: Credentials,
    credential_providers: CredentialProviders,
    replays: Replays,
    traces_calls: bool,
}

impl UseCases {
    pub(super) fn new(
        infrastructure: &Infrastructure,
        services: &SessionServices,
        settings: &ServeSettings,
        data_dir: &DataDir,
    ) -> anyhow::Result<Self> {
        let Infrastructure { node, rows, keys, engine, .. } = infrastructure;
        let (limits, sessions, egress) = (&settings.limits, &services.sessions, infrastructure.sandbox_egress.egress());
        let web_store = ChromeWebStore { egress: egress.clone(), url: settings.web_store_url.clone() };
        let extensions = extensions::use_cases(
            rows.extensions.clone(),
            infrastructure.blobs.clone(),
            data_dir.path(),
            engine,
            sessions,
            services.logged.clone(),
            (web_store, limits.max_extensions),
        );
        let dialer = proxies::EgressProxyChecker { egress, address_url: settings.proxy_check_url.clone() };
        let upstreams = infrastructure.upstreams.clone();
        let proxies = proxies::use_cases(rows.proxies.clone(), keys, dialer, upstreams, limits.max_proxies);
        let profiles = profiles::use_cases(infrastructure.profiles.clone(), limits.max_profiles);
        let under_apps = AppServices {
            own: infrastructure.own.clone(),
            public_url: &infrastructure.public_url,
            sessions: sessions.clone(),
            keys: rows.keys.clone(),
            blobs: infrastructure.blobs.clone(),
            sealer: keys,
            due: AppsDue::of(&infrastructure.due_work),
        };
        let (app_runtime, stop) = (infrastructure.machines.clone(), services.stop.child_token());
        let apps = Apps::new(under_apps, rows.apps.clone(), app_runtime, &settings.apps, stop);
        let credentials = credentials::use_cases(rows.credentials.clone(), keys, limits.max_credentials);
        let credential_providers = credential_providers::use_cases(rows.credential_providers.clone(), keys, settings);
        let (machine, operations) = (Arc::new(engine.clone()), sessions.operations());
        let replays = Replays::new(machine, infrastructure.replays.clone(), operations, Arc::new(System));
        let auth_changes = AuthChanges::default();
        let auth_connections = AuthConnections::new(AuthConnectionDeps {
            connections: rows.auth_connections.clone(),
            credentials: rows.credentials.clone(),
            external: Arc::new(credential_providers.clone()),
            profiles: profiles.clone(),
            proxies: infrastructure.routing.clone(),
            sessions: sessions.clone(),
            notifier: Arc::new(auth_changes.clone()),
            sealer: Arc::new(keys.clone()),
            entropy: Arc::new(System),
            clock: Arc::new(System),
            ids: Arc::new(System),
            max: limits.max_auth_connections,
        });
        let under_logins = RunnerDeps {
            node: *node,
            pages: Arc::new(engine.clone()),
            projects: rows.projects.clone(),
            credentials: credentials.clone(),
            replays: replays.clone(),
            pictures: logins::pictures(data_dir.path()),
        };
        let exported = (rows.audit_destinations.clone(), rows.audit.clone());
        let audit_export = AuditExport::new(*node, exported, &services.trail, &settings.audit_export)?;
        Ok(Self {
            traces_calls: settings.otlp_traces.is_some(),
            audit_export,
            apps,
            extensions,
            profiles,
            proxies,
            logins: FlowRunner::new(auth_connections.clone(), under_logins),
            auth_changes,
            auth_connections,
            credentials,
            credential_providers,
            replays,
        })
    }

    /// Returns all services of the HTTP server.
    pub(super) fn services(
        &self,
        infrastructure: &Infrastructure,
        services: &SessionServices,
        store: &Store,
        data_dir: &DataDir,
        metrics: &PrometheusHandle,
    ) -> anyhow::Result<Services> {
        let Infrastructure { rows, engine, .. } = infrastructure;
        let (machine, system) = (Arc::new(engine.clone()), Arc::new(System));
        let operations = || services.sessions.operations();
        let (keys, key_rows, projects) = (rows.keys.clone(), rows.key_rows.clone(), rows.projects.clone());
        Ok(Services {
            node: infrastructure.node,
            cluster: infrastructure.cluster.clone(),
            placement: infrastructure.placement(store),
            peer_requests: PeerRequests::new(services.leases.clone()),
            api_keys: keys.clone(),
            key_administration: KeyAdministration::new(keys, key_rows, projects.clone(), system.clone()),
            access: Access::new(projects.clone()),
            projects: Projects::new(projects, system.clone(), system.clone()),
            sessions: services.sessions.clone(),
            leases: services.leases.clone(),
            pools: services.pools.clone(),
            audit: AuditLogs::new(rows.audit.clone(), services.trail.clone()),
            audit_destinations: self.audit_export.destinations.clone(),
            nodes: Nodes::new(rows.nodes.clone()),
            own: infrastructure.own.clone(),
            trail: services.trail.clone(),
            files: Files::new(Arc::new(EngineFiles(infrastructure.engines.clone())), operations()),
            computers: Computers::new(machine.clone(), operations()),
            displays: machine.clone(),
            extensions: self.extensions.clone(),
            auth_connections: self.auth_connections.clone(),
            credentials: self.credentials.clone(),
            deployments: self.apps.deployments.clone(),
            invocations: self.apps.invocations.clone(),
            credential_providers: self.credential_providers.clone(),
            profiles: self.profiles.clone(),
            proxies: self.proxies.clone(),
            processes: Processes::new(machine.clone(), operations(), system.clone()),
            session_logs: SessionLogs::new(machine.clone(), operations()),
            curl: Curl::new(machine.clone(), operations()),
            replays: self.replays.clone(),
            scripts: Scripts::new(machine.clone(), operations()),
            page_tools: PageTools::new(machine, operations()),
            telemetry: TelemetryEvents::new(rows.telemetry.clone(), Arc::new(services.feed.clone()), system.clone()),
            telemetry_destinations: services.telemetry_destinations.clone(),
            recorder: services.recorder.clone(),
            sign_ins: SignIns::new(rows.sign_ins.clone(), system.clone(), system.clone()),
            tokens: shared_secret::session_tokens(&infrastructure.shared_secret, data_dir)?,
            denied_requests: Arc::new(infrastructure.sandbox_egress.denied()),
            session_connector: Arc::new(infrastructure.engines.clone()),
            connections: services.connections.clone(),
            tracing: self.traces_calls.then(|| Arc::new(CallTraces) as Arc<dyn CallTracing>),
            health: Arc::new(NodeHealth {
                own: infrastructure.own.clone(),
                database: store.database.clone(),
                spares: services.spares.clone(),
                disk: infrastructure.disk.clone(),
                blobs: infrastructure.blob_store.clone(),
            }),
            metrics: rendered(metrics.clone(), services.figures.clone()),
            pool_status: Arc::new(services.figures.clone()),
            disk: Arc::new(infrastructure.disk.clone()),
            clock: system.clone(),
            monotonic: system.clone(),
            ids: system,
            runtime: Handle::current(),
        })
    }
}

fn rendered(metrics: PrometheusHandle, pools: PoolGauges) -> Arc<dyn Fn() -> String + Send + Sync> {
    Arc::new(move || metrics.render() + &pools.render())
}
