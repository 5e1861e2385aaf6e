//! The mocked ports, and the services that use them.

use std::{
    mem::take,
    sync::{Arc, atomic::AtomicI32},
    time::Duration,
};

use casement_domain::node::NoPeers;
use casement_domain::{
    NodeId, SessionId,
    access::Access,
    api_key::{ApiKeys, KeyAdministration, MockApiKeyDirectory, MockApiKeyRepository},
    audit::{AuditLogs, MockAuditRepository},
    audit_destination::{
        AuditDestinationDeps, AuditDestinations, AuditExportOffer, MockAuditBuckets, MockAuditDestinationRepository,
    },
    auth_connection::{
        AuthConnectionDeps, AuthConnections, MockAuthConnectionRepository, MockExternalCredentials,
        MockFlowChangeNotifier,
    },
    blob::MockBlobStore,
    browser::{Installation, MockBrowserEngine, MockBrowserRepository, MockSpareBrowsers},
    computer::{Computers, MockComputer},
    credential::{CredentialDeps, Credentials, MockCredentialRepository},
    credential_provider::{
        CredentialProviders, MockCredentialProviderRepository, MockCredentialStore, ProviderDeps, ProviderSettings,
    },
    curl::{Curl, MockCurlMachine},
    deployment::{
        DeploymentDeps, DeploymentRules, Deployments, MockChangeNotifier, MockDeploymentRepository, MockLineStore,
    },
    engine::ConfiguredEngines,
    extension::{ExtensionDeps, Extensions, MockExtensionMachine, MockExtensionRepository, MockWebStore},
    fs::{Files, MockFileMachine},
    invocation::{InvocationDeps, Invocations, MockInvocationRepository},
    live_view::MockLiveDisplay,
    network::NoDeniedRequests,
    node::{Epoch, MockNodeRepository, MockNodeRooms, Nodes, OwnState, Placement},
    pool::{Leases, MockPoolRepository, MockTicketNotifier, MockWaitQueue, PeerRequests, PoolDeps, Pools},
    process::{MockProcessMachine, Processes},
    profile::{
        MockProfileMachine, MockProfileReports, MockProfileRepository, ProfileDeps, ProfileVersions, Profiles,
        SessionProfiles,
    },
    project::{MockProjectRepository, Projects},
    proxy::{MockProxyDialer, MockProxyRepository, NoRoutes, Proxies, ProxyDeps, ProxyGateways, ProxyRouting},
    replay::{MockReplayMachine, MockReplayRepository, ReplayArchive, ReplayLimits, Replays, SessionReplays},
    script::{MockScriptMachine, Scripts},
    session::{Activity, IdOrName, MockPoolWake, MockSessionRepository, SessionDeps, Sessions},
    session_log::{MockLogMachine, SessionLogs},
    sign_in::SignIns,
    storage::UnlimitedDisk,
    telemetry::{MockFeed, MockRecorder, MockTelemetryStore, NoRecorder, Recorder, TelemetryEvents},
    telemetry_destination::{
        DestinationDeps, MockDestinationAddresses, MockTelemetryDestinationRepository, TelemetryDestinations,
    },
    testing::{CountingIds, FixedClock, PlainSealer, node_id, session, session_id},
    webmcp::{MockToolMachine, PageTools},
};
use casement_http::{Cluster, ConnectionRegistry, ServerCertificate, Services, SessionConnector, SessionTokens};

use super::{
    fakes::{Archives, FailingConnector, FixedHealth, FixedPoolStatus, MemorySignIns, NoWaker, Trail},
    keys::{DelayedKeys, default_keys, projects as projects_repository},
};
use crate::api::slow_queue::SlowQueue;

/// The ports of the server. A port that a test does not set up panics when it is called, which leads to a 500.
#[derive(Default)]
pub(in crate::api) struct Ports {
    pub(in crate::api) sessions: MockSessionRepository,
    pub(in crate::api) browsers: MockBrowserRepository,
    pub(in crate::api) engine: MockBrowserEngine,
    pub(in crate::api) spares: MockSpareBrowsers,
    pub(in crate::api) pools: MockPoolRepository,
    pub(in crate::api) wait_queue: MockWaitQueue,
    /// The duration of a lease and of a read of a ticket. Neither blocks the worker that waits for it.
    pub(in crate::api) queue_delay: Duration,
    pub(in crate::api) tickets: MockTicketNotifier,
    pub(in crate::api) wake: MockPoolWake,
    pub(in crate::api) extensions: MockExtensionRepository,
    pub(in crate::api) credentials: MockCredentialRepository,
    pub(in crate::api) deployments: MockDeploymentRepository,
    pub(in crate::api) invocations: MockInvocationRepository,
    pub(in crate::api) lines: MockLineStore,
    pub(in crate::api) change_notifier: MockChangeNotifier,
    pub(in crate::api) packages: MockBlobStore,
    pub(in crate::api) credential_providers: MockCredentialProviderRepository,
    pub(in crate::api) credential_store: MockCredentialStore,
    pub(in crate::api) provider_settings: ProviderSettings,
    pub(in crate::api) upstreams: ProxyGateways,
    pub(in crate::api) auth_connections: MockAuthConnectionRepository,
    pub(in crate::api) external: MockExternalCredentials,
    pub(in crate::api) flow_notifier: MockFlowChangeNotifier,
    pub(in crate::api) profiles: MockProfileRepository,
    pub(in crate::api) profile_bytes: MockBlobStore,
    pub(in crate::api) proxies: MockProxyRepository,
    pub(in crate::api) dialer: MockProxyDialer,
    pub(in crate::api) blobs: MockBlobStore,
    pub(in crate::api) extension_machine: MockExtensionMachine,
    pub(in crate::api) web_store: MockWebStore,
    pub(in crate::api) files: MockFileMachine,
    pub(in crate::api) computer: MockComputer,
    pub(in crate::api) processes: MockProcessMachine,
    pub(in crate::api) session_logs: MockLogMachine,
    pub(in crate::api) curl: MockCurlMachine,
    pub(in crate::api) replays: MockReplayMachine,
    pub(in crate::api) stored_replays: MockReplayRepository,
    pub(in crate::api) videos: MockBlobStore,
    pub(in crate::api) displays: MockLiveDisplay,
    pub(in crate::api) scripts: MockScriptMachine,
    pub(in crate::api) page_tools: MockToolMachine,
    pub(in crate::api) keys: Option<MockApiKeyRepository>,
    /// The delay of the repository of keys.
    pub(in crate::api) keys_delay: Duration,
    pub(in crate::api) projects: Option<MockProjectRepository>,
    pub(in crate::api) not_ready: Option<String>,
    pub(in crate::api) degraded: Option<&'static str>,
    /// Gets the id of the server's worker thread when its readiness is read.
    pub(in crate::api) worker: Arc<AtomicI32>,
    pub(in crate::api) public_url: Option<String>,
    pub(in crate::api) follows_host: bool,
    pub(in crate::api) session_connector: Option<Arc<dyn SessionConnector>>,
    pub(in crate::api) directory: MockApiKeyDirectory,
    pub(in crate::api) audit: MockAuditRepository,
    pub(in crate::api) trail: Trail,
    pub(in crate::api) sign_ins: MemorySignIns,
    /// In boxes, because the futures of tests hold all ports.
    pub(in crate::api) audit_destinations: Box<MockAuditDestinationRepository>,
    pub(in crate::api) audit_buckets: Box<MockAuditBuckets>,
    pub(in crate::api) nodes: Box<MockNodeRepository>,
    /// The rooms of nodes. Without them, each session starts where it was requested.
    pub(in crate::api) rooms: Option<Box<MockNodeRooms>>,
    /// What the server knows of its own node; `None`: it serves and never loses contact.
    pub(in crate::api) own: Option<OwnState>,
    pub(in crate::api) audit_offer: Option<AuditExportOffer>,
    /// The recorder of telemetry events. Without one, none are recorded.
    pub(in crate::api) recorder: Option<MockRecorder>,
    pub(in crate::api) events: MockTelemetryStore,
    pub(in crate::api) feed: MockFeed,
    /// In a box, like the following port, because the futures of tests hold all ports.
    pub(in crate::api) telemetry_destinations: Box<MockTelemetryDestinationRepository>,
    pub(in crate::api) destination_addresses: Box<MockDestinationAddresses>,
    pub(in crate::api) certificate: Option<ServerCertificate>,
    /// The engines; `None`: the local one only.
    pub(in crate::api) engines: Option<ConfiguredEngines>,
    pub(in crate::api) node: Option<NodeId>,
    pub(in crate::api) cluster: Option<Cluster>,
    pub(in crate::api) for_nodes: Option<std::net::TcpListener>,
    pub(in crate::api) trusted_proxies: Vec<&'static str>,
    pub(in crate::api) cors_origins: Vec<&'static str>,
    pub(in crate::api) rate_limit: Option<u32>,
    pub(in crate::api) refused_limit: Option<u32>,
    /// The largest memory of a session; `None`: the default.
    pub(in crate::api) max_session_memory_mib: Option<u32>,
}

/// The use cases and ports that several other use cases share.
struct Common {
    clock: Arc<FixedClock>,
    ids: Arc<CountingIds>,
    sessions: Sessions,
    session_rows: Arc<MockSessionRepository>,
    engine: Arc<MockBrowserEngine>,
    wake: Arc<MockPoolWake>,
    extensions: Arc<MockExtensionRepository>,
    profile_versions: ProfileVersions,
    profiles: SessionProfiles,
    proxies: Arc<MockProxyRepository>,
    routing: ProxyRouting,
    connections: ConnectionRegistry,
    recorder: Arc<dyn Recorder>,
    telemetry_destinations: Arc<MockTelemetryDestinationRepository>,
    api_keys: ApiKeys,
}

impl Common {
    fn new(ports: &mut Ports, clock: &Arc<FixedClock>) -> Self {
        let (clock, ids) = (clock.clone(), Arc::new(CountingIds::default()));
        let (session_rows, engine) = (Arc::new(take(&mut ports.sessions)), Arc::new(take(&mut ports.engine)));
        let (wake, connections) = (Arc::new(take(&mut ports.wake)), ConnectionRegistry::new());
        let (extensions, proxies) = (Arc::new(take(&mut ports.extensions)), Arc::new(take(&mut ports.proxies)));
        let profile_versions = ProfileVersions::new(
            Arc::new(take(&mut ports.profiles)),
            Arc::new(take(&mut ports.profile_bytes)),
            Arc::new(PlainSealer),
            clock.clone(),
        );
        let profiles = SessionProfiles::new(ProfileDeps {
            stored: profile_versions.clone(),
            machine: Arc::new(MockProfileMachine::new()),
            reports: Arc::new(MockProfileReports::new()),
            pools: wake.clone(),
            ids: ids.clone(),
        });
        let routing = ProxyRouting::new(proxies.clone(), Arc::new(PlainSealer), Arc::new(NoRoutes), Arc::default());
        let recorder: Arc<dyn Recorder> = match ports.recorder.take() {
            Some(mock) => Arc::new(mock),
            None => Arc::new(NoRecorder),
        };
        let mut installation = Installation::default();
        if let Some(mib) = ports.max_session_memory_mib {
            installation.memory.max.mib = mib;
        }
        let telemetry_destinations = Arc::new(*take(&mut ports.telemetry_destinations));
        let sessions = Sessions::new(SessionDeps {
            node: ports.node.unwrap_or_else(node_id),
            installation,
            sessions: session_rows.clone(),
            browsers: Arc::new(take(&mut ports.browsers)),
            engine: engine.clone(),
            engines: Arc::new(ports.engines.take().unwrap_or_else(ConfiguredEngines::local)),
            extensions: extensions.clone(),
            profiles: profiles.clone(),
            replays: SessionReplays::none(),
            proxies: routing.clone(),
            spares: Arc::new(take(&mut ports.spares)),
            peers: Arc::new(NoPeers),
            connections: Arc::new(connections.clone()),
            pools: wake.clone(),
            activity: Activity::new(clock.clone(), clock.clone()),
            recorder: recorder.clone(),
            telemetry_destinations: telemetry_destinations.clone(),
            clock: clock.clone(),
            monotonic: clock.clone(),
            ids: ids.clone(),
        });
        let keys = ports.keys.take().unwrap_or_else(default_keys);
        let api_keys = ApiKeys::new(
            Arc::new(DelayedKeys { keys, delay: ports.keys_delay }),
            clock.clone(),
            ids.clone(),
            Arc::new(CountingIds::default()),
        );
        Self {
            clock,
            ids,
            sessions,
            session_rows,
            engine,
            wake,
            extensions,
            profile_versions,
            profiles,
            proxies,
            routing,
            connections,
            recorder,
            telemetry_destinations,
            api_keys,
        }
    }

    fn profiles(&self) -> Profiles {
        Profiles::new(self.profile_versions.clone(), self.clock.clone(), self.ids.clone(), 1000)
    }
}

impl Ports {
    fn pool_deps(&mut self, common: &Common) -> PoolDeps {
        PoolDeps {
            node: self.node.unwrap_or_else(node_id),
            installation: Installation::default(),
            pools: Arc::new(take(&mut self.pools)),
            sessions: common.session_rows.clone(),
            wait_queue: Arc::new(SlowQueue {
                queue: take(&mut self.wait_queue),
                delay: self.queue_delay,
                row: tokio::sync::Mutex::default(),
            }),
            tickets: Arc::new(take(&mut self.tickets)),
            engine: common.engine.clone(),
            extensions: common.extensions.clone(),
            profiles: common.profiles.clone(),
            proxies: common.routing.clone(),
            wake: common.wake.clone(),
            clock: common.clock.clone(),
            monotonic: common.clock.clone(),
            ids: common.ids.clone(),
            max_pools: 100,
        }
    }

    fn apps(&mut self, common: &Common) -> (Deployments, Invocations) {
        let (deployments, invocations) = (Arc::new(take(&mut self.deployments)), Arc::new(take(&mut self.invocations)));
        let (lines, notifier) = (Arc::new(take(&mut self.lines)), Arc::new(take(&mut self.change_notifier)));
        let deployment_deps = DeploymentDeps {
            deployments: deployments.clone(),
            invocations: invocations.clone(),
            lines: lines.clone(),
            notifier: notifier.clone(),
            blobs: Arc::new(take(&mut self.packages)),
            archives: Arc::new(Archives),
            keys: common.api_keys.clone(),
            sealer: Arc::new(PlainSealer),
            clock: common.clock.clone(),
            ids: common.ids.clone(),
            rules: DeploymentRules {
                regions: vec![Deployments::DEFAULT_REGION.to_owned(), "home.attic".to_owned()],
                origins: vec![Deployments::DEFAULT_ORIGIN.parse().unwrap(), "http://127.0.0.1:3000".parse().unwrap()],
            },
            max: 500,
        };
        let invocation_deps = InvocationDeps {
            invocations,
            deployments,
            lines,
            notifier,
            sessions: common.sessions.clone(),
            clock: common.clock.clone(),
            ids: common.ids.clone(),
        };
        (Deployments::new(deployment_deps), Invocations::new(invocation_deps))
    }

    fn logins(&mut self, common: &Common) -> (AuthConnections, Credentials) {
        let credentials = Arc::new(take(&mut self.credentials));
        let auth_connections = AuthConnections::new(AuthConnectionDeps {
            connections: Arc::new(take(&mut self.auth_connections)),
            credentials: credentials.clone(),
            external: Arc::new(take(&mut self.external)),
            profiles: common.profiles(),
            proxies: common.routing.clone(),
            sessions: common.sessions.clone(),
            notifier: Arc::new(take(&mut self.flow_notifier)),
            sealer: Arc::new(PlainSealer),
            entropy: Arc::new(CountingIds::default()),
            clock: common.clock.clone(),
            ids: common.ids.clone(),
            max: 500,
        });
        let credentials = Credentials::new(CredentialDeps {
            credentials,
            sealer: Arc::new(PlainSealer),
            clock: common.clock.clone(),
            ids: common.ids.clone(),
            max: 1000,
        });
        (auth_connections, credentials)
    }

    fn credential_providers(&mut self, common: &Common) -> CredentialProviders {
        CredentialProviders::new(ProviderDeps {
            providers: Arc::new(take(&mut self.credential_providers)),
            store: Arc::new(take(&mut self.credential_store)),
            sealer: Arc::new(PlainSealer),
            clock: common.clock.clone(),
            ids: common.ids.clone(),
            settings: take(&mut self.provider_settings),
            max: 100,
        })
    }

    fn proxies(&mut self, common: &Common) -> Proxies {
        Proxies::new(ProxyDeps {
            proxies: common.proxies.clone(),
            sealer: Arc::new(PlainSealer),
            dialer: Arc::new(take(&mut self.dialer)),
            upstreams: Arc::new(take(&mut self.upstreams)),
            clock: common.clock.clone(),
            ids: common.ids.clone(),
            max: 1000,
        })
    }

    fn extensions(&mut self, common: &Common) -> Extensions {
        Extensions::new(ExtensionDeps {
            extensions: common.extensions.clone(),
            blobs: Arc::new(take(&mut self.blobs)),
            archives: Arc::new(Archives),
            machine: Arc::new(take(&mut self.extension_machine)),
            web_store: Arc::new(take(&mut self.web_store)),
            connections: Arc::new(common.connections.clone()),
            operations: common.sessions.operations(),
            clock: common.clock.clone(),
            ids: common.ids.clone(),
            max: 500,
        })
    }

    /// Returns ports that know the first session, by its id and in its project.
    pub(in crate::api) fn of_first_session() -> Self {
        let mut ports = Self::default();
        ports.sessions.expect_find().returning(|wanted| Ok((wanted == session_id(1)).then(|| session(1))));
        let has_its_id = |which: &IdOrName<SessionId>| matches!(which, IdOrName::Id(id) if *id == session_id(1));
        ports.sessions.expect_find_in_project().returning(move |_, which, _| Ok(has_its_id(which).then(|| session(1))));
        ports
    }

    /// Builds the services of a server that use these ports.
    pub(super) fn into_services(mut self, clock: &Arc<FixedClock>, tokens: SessionTokens) -> Services {
        let common = Common::new(&mut self, clock);
        let pool_deps = self.pool_deps(&common);
        let (deployments, invocations) = self.apps(&common);
        let (auth_connections, credentials) = self.logins(&common);
        let credential_providers = self.credential_providers(&common);
        let (proxies, extensions) = (self.proxies(&common), self.extensions(&common));
        let profiles = common.profiles();
        let Common { clock, ids, sessions, connections, recorder, telemetry_destinations, api_keys, .. } = common;
        let rooms = self.rooms.take().unwrap_or_else(|| {
            let mut unknown = Box::new(MockNodeRooms::new());
            unknown.expect_rooms().returning(|_| Ok(Vec::new()));
            unknown
        });
        let node = self.node.unwrap_or_else(node_id);
        let stored_replays = ReplayArchive::new(
            Arc::new(self.stored_replays),
            Arc::new(self.videos),
            clock.clone(),
            ReplayLimits { most_bytes: 1 << 20, retention: time::Duration::days(7) },
            Arc::new(UnlimitedDisk),
        );
        let project_rows = Arc::new(self.projects.unwrap_or_else(projects_repository));
        let operations = sessions.operations();
        Services {
            node,
            cluster: self.cluster,
            key_administration: KeyAdministration::new(
                api_keys.clone(),
                Arc::new(self.directory),
                project_rows.clone(),
                clock.clone(),
            ),
            api_keys,
            access: Access::new(project_rows.clone()),
            projects: Projects::new(project_rows, clock.clone(), Arc::new(CountingIds::default())),
            pools: Pools::new(pool_deps.clone(), sessions.clone()),
            placement: Placement::new(node, Arc::new(*rooms), clock.clone()),
            peer_requests: PeerRequests::new(Leases::new(pool_deps.clone(), sessions.clone())),
            leases: Leases::new(pool_deps, sessions.clone()),
            sessions,
            audit: AuditLogs::new(Arc::new(self.audit), Arc::new(self.trail.clone())),
            audit_destinations: AuditDestinations::new(AuditDestinationDeps {
                destinations: Arc::new(*self.audit_destinations),
                buckets: Arc::new(*self.audit_buckets),
                offer: self.audit_offer,
                waker: Arc::new(NoWaker),
                clock: clock.clone(),
                ids: Arc::new(CountingIds::default()),
            }),
            nodes: Nodes::new(Arc::new(*self.nodes)),
            own: self.own.unwrap_or_else(|| OwnState::new(node_id(), Epoch(4), Arc::new(FixedClock::default()))),
            trail: Arc::new(self.trail),
            files: Files::new(Arc::new(self.files), operations.clone()),
            computers: Computers::new(Arc::new(self.computer), operations.clone()),
            auth_connections,
            credentials,
            deployments,
            invocations,
            credential_providers,
            profiles,
            proxies,
            extensions,
            displays: Arc::new(self.displays),
            processes: Processes::new(Arc::new(self.processes), operations.clone(), ids.clone()),
            session_logs: SessionLogs::new(Arc::new(self.session_logs), operations.clone()),
            curl: Curl::new(Arc::new(self.curl), operations.clone()),
            replays: Replays::new(Arc::new(self.replays), stored_replays, operations.clone(), ids),
            scripts: Scripts::new(Arc::new(self.scripts), operations.clone()),
            page_tools: PageTools::new(Arc::new(self.page_tools), operations),
            telemetry: TelemetryEvents::new(Arc::new(self.events), Arc::new(self.feed), clock.clone()),
            telemetry_destinations: TelemetryDestinations::new(DestinationDeps {
                destinations: telemetry_destinations,
                sealer: Arc::new(PlainSealer),
                addresses: Arc::new(*self.destination_addresses),
                clock: clock.clone(),
                ids: Arc::new(CountingIds::default()),
            }),
            recorder,
            sign_ins: SignIns::new(Arc::new(self.sign_ins), Arc::new(CountingIds::default()), clock.clone()),
            tokens,
            denied_requests: Arc::new(NoDeniedRequests),
            session_connector: self.session_connector.unwrap_or_else(|| Arc::new(FailingConnector)),
            connections,
            tracing: None,
            health: Arc::new(FixedHealth { failure: self.not_ready, degraded: self.degraded, worker: self.worker }),
            pool_status: Arc::new(FixedPoolStatus),
            disk: Arc::new(UnlimitedDisk),
            metrics: Arc::new(|| "casement_up 1\n".to_owned()),
            monotonic: clock.clone(),
            clock,
            ids: Arc::new(CountingIds::default()),
            runtime: tokio::runtime::Handle::current(),
        }
    }
}
