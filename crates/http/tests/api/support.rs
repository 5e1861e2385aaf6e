//! A server with mocked ports, and a client that sends exactly what it is told.

use std::{fmt, net::TcpListener, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::{
    ApiKeyId, BrowserId, OrganizationId, PoolId, ProjectId, SessionId, StoreError, UserId,
    access::Access,
    api_key::{
        ApiKey, ApiKeyRepository, ApiKeys, KeyAdministration, KeySecret, KeyWithHash, MockApiKeyDirectory,
        MockApiKeyRepository,
    },
    audit::{AuditEntry, AuditLogs, AuditTrail, MockAuditRepository, PreparedRecord, RecordTimestamp},
    auth_connection::{
        AuthConnectionDeps, AuthConnections, MockAuthConnectionRepository, MockExternalCredentials,
        MockFlowChangeNotifier,
    },
    blob::MockBlobStore,
    browser::{MockBrowserEngine, MockBrowserRepository, MockSpareBrowsers},
    computer::{Computers, MockComputer},
    credential::{CredentialDeps, Credentials, MockCredentialRepository},
    credential_provider::{
        CredentialProviders, MockCredentialProviderRepository, MockCredentialStore, ProviderDeps, ProviderSettings,
    },
    curl::{Curl, MockCurlMachine},
    deployment::{
        DeploymentDeps, DeploymentRules, Deployments, InspectedPackage, MockChangeNotifier, MockDeploymentRepository,
        MockLineStore, PackageArchives, PackagePath,
    },
    extension::{
        ExtensionArchives, ExtensionDeps, Extensions, InspectedArchive, MockExtensionMachine, MockExtensionRepository,
        MockWebStore,
    },
    field::{FieldCode, InvalidInput, InvalidValue},
    fs::{Files, MockFileMachine},
    invocation::{InvocationDeps, Invocations, MockInvocationRepository},
    live_view::MockLiveDisplay,
    name::LabelName,
    page::{Listed, Page},
    pool::{Leases, MockPoolRepository, MockTicketNotifier, MockWaitQueue, PoolDeps, Pools},
    process::{MockProcessMachine, Processes},
    profile::{
        MockProfileMachine, MockProfileReports, MockProfileRepository, ProfileDeps, ProfileVersions, Profiles,
        SessionProfiles,
    },
    project::{MockProjectRepository, Project, Projects},
    proxy::{MockProxyDialer, MockProxyRepository, NoRoutes, Proxies, ProxyDeps, ProxyGateways, ProxyRouting},
    replay::{MockReplayMachine, MockReplayRepository, ReplayArchive, ReplayLimits, Replays, SessionReplays},
    script::{MockScriptMachine, Scripts},
    session::{Activity, MockPoolWake, MockSessionRepository, SessionDeps, Sessions},
    session_log::{MockLogMachine, SessionLogs},
    session_operation::{ByteStream, OperationError},
    storage::UnlimitedDisk,
    telemetry::{MockFeed, MockRecorder, MockTelemetryStore, NoRecorder, Recorder, TelemetryEvents},
    testing::{CountingIds, FixedClock, NOON, PlainSealer, node_id, organization_id, project, project_id},
};
use casement_http::{
    Config, ConnectionRegistry, Health, Permission, PoolStatus, PoolStatusSource, Readiness, Server, Services,
    SessionConnector, SessionTokens,
    relay::{BrowserConnector, Channel, ConnectorError},
    serve,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// How long a reply may take.
const TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const TOKEN_KEY: [u8; 32] = [7; 32];

/// The ports; one that a test does not set up panics when it is called, which answers 500.
#[derive(Default)]
pub(super) struct Ports {
    pub(super) sessions: MockSessionRepository,
    pub(super) browsers: MockBrowserRepository,
    pub(super) engine: MockBrowserEngine,
    pub(super) spares: MockSpareBrowsers,
    pub(super) pools: MockPoolRepository,
    pub(super) line: MockWaitQueue,
    /// How long a browser of a line takes to be leased, and a ticket to be looked at; the worker that waits for it goes on meanwhile.
    pub(super) line_takes: Duration,
    pub(super) tickets: MockTicketNotifier,
    pub(super) wake: MockPoolWake,
    pub(super) extensions: MockExtensionRepository,
    pub(super) credentials: MockCredentialRepository,
    pub(super) deployments: MockDeploymentRepository,
    pub(super) invocations: MockInvocationRepository,
    pub(super) lines: MockLineStore,
    pub(super) news: MockChangeNotifier,
    pub(super) packages: MockBlobStore,
    pub(super) credential_providers: MockCredentialProviderRepository,
    pub(super) credential_store: MockCredentialStore,
    pub(super) provider_settings: ProviderSettings,
    pub(super) upstreams: ProxyGateways,
    pub(super) auth_connections: MockAuthConnectionRepository,
    pub(super) external: MockExternalCredentials,
    pub(super) auth_news: MockFlowChangeNotifier,
    pub(super) profiles: MockProfileRepository,
    pub(super) profile_bytes: MockBlobStore,
    pub(super) proxies: MockProxyRepository,
    pub(super) dialer: MockProxyDialer,
    pub(super) blobs: MockBlobStore,
    pub(super) loading: MockExtensionMachine,
    pub(super) web_store: MockWebStore,
    pub(super) files: MockFileMachine,
    pub(super) computer: MockComputer,
    pub(super) processes: MockProcessMachine,
    pub(super) session_logs: MockLogMachine,
    pub(super) curl: MockCurlMachine,
    pub(super) replays: MockReplayMachine,
    pub(super) kept_replays: MockReplayRepository,
    pub(super) videos: MockBlobStore,
    pub(super) displays: MockLiveDisplay,
    pub(super) scripts: MockScriptMachine,
    pub(super) keys: Option<MockApiKeyRepository>,
    /// How long the store of keys takes.
    pub(super) keys_take: Duration,
    pub(super) projects: Option<MockProjectRepository>,
    pub(super) not_ready: Option<String>,
    pub(super) degraded: Option<&'static str>,
    pub(super) public_url: Option<String>,
    pub(super) dial: Option<Arc<dyn SessionConnector>>,
    pub(super) directory: MockApiKeyDirectory,
    pub(super) audit: MockAuditRepository,
    pub(super) trail: Trail,
    /// Nothing is recorded unless a test says how.
    pub(super) recorder: Option<MockRecorder>,
    pub(super) events: MockTelemetryStore,
    pub(super) feed: MockFeed,
    pub(super) trusted_proxies: Vec<&'static str>,
    pub(super) cors_origins: Vec<&'static str>,
    pub(super) rate_limit: Option<u32>,
    pub(super) refused_limit: Option<u32>,
}

/// Remembers what is recorded; clones share it.
#[derive(Clone, Default)]
pub(super) struct Trail {
    pub(super) entries: Arc<Mutex<Vec<(bool, AuditEntry)>>>,
    /// Which calls were stored as begun.
    pub(super) begun: Arc<Mutex<Vec<AuditEntry>>>,
    /// No record can be written.
    pub(super) broken: bool,
    /// No call can be stored as begun either.
    pub(super) broken_from_the_start: bool,
    /// Records from then on wait to be written.
    pub(super) unwritten_since: Option<OffsetDateTime>,
    /// Until when the records of all nodes are complete.
    pub(super) whole_until: Option<OffsetDateTime>,
}

impl Trail {
    /// What was recorded, and whether its call waited for it. Waits for the first record.
    pub(super) async fn entries(&self) -> Vec<(bool, AuditEntry)> {
        let first = async {
            while self.entries.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // Without any, the list is empty.
        tokio::time::timeout(TIMEOUT, first).await.ok();
        self.entries.lock().clone()
    }
}

#[async_trait]
impl AuditTrail for Trail {
    async fn begin(&self, entry: AuditEntry) -> Result<(), StoreError> {
        if self.broken_from_the_start {
            return Err(StoreError::unavailable("audit.begin", "away"));
        }
        self.begun.lock().push(entry);
        Ok(())
    }

    async fn keep(&self, entry: AuditEntry, _: Option<Arc<PreparedRecord>>) -> Result<(), StoreError> {
        if self.broken {
            return Err(StoreError::unavailable("audit.append", "away"));
        }
        self.entries.lock().push((true, entry));
        Ok(())
    }

    fn note(&self, entry: AuditEntry, _: Option<Arc<PreparedRecord>>) {
        self.entries.lock().push((false, entry));
    }

    fn refused(&self, entry: AuditEntry) {
        self.entries.lock().push((false, entry));
    }

    fn stamp(&self, now: OffsetDateTime) -> RecordTimestamp {
        RecordTimestamp::free(now)
    }

    async fn whole_until(&self, end: OffsetDateTime) -> Result<OffsetDateTime, StoreError> {
        match self.unwritten_since {
            Some(since) if since < end => Err(StoreError::unavailable("audit.settle", "records wait")),
            _ => Ok(self.whole_until.map_or(end, |whole| whole.min(end))),
        }
    }
}

/// The keys that there are.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// Of the whole organization.
    Organization = 1,
    /// Of another project.
    OtherProject = 2,
    /// Revoked.
    Revoked = 3,
}

pub(super) fn other_project() -> ProjectId {
    ProjectId::from_ulid(nth(2, 2))
}

fn nth(high: u64, low: u128) -> ulid::Ulid {
    ulid::Ulid::from_parts(high, low)
}

impl Key {
    fn id(self) -> ApiKeyId {
        ApiKeyId::from_ulid(nth(9, self as u128))
    }

    fn secret(self) -> KeySecret {
        struct Fixed(u8);
        impl casement_domain::Entropy for Fixed {
            fn secret_bytes(&self) -> [u8; 32] {
                [self.0; 32]
            }
        }
        KeySecret::mint(&Fixed(self as u8))
    }

    pub(super) fn text(self) -> String {
        self.secret().key_text(self.id())
    }

    fn stored(self) -> KeyWithHash {
        let key = ApiKey {
            id: self.id(),
            organization: organization_id(),
            project: matches!(self, Self::OtherProject).then(other_project),
            name: LabelName::parse("test").unwrap(),
            hash: self.secret().hash(),
            last4: self.secret().last4(),
            created_by: UserId::from_ulid(nth(8, 1)),
            created_at: NOON,
            expires_at: None,
            deleted_at: matches!(self, Self::Revoked).then_some(NOON),
            for_deployment: false,
        };
        KeyWithHash { key, project_deleted: false, home: None }
    }
}

pub(super) fn default_keys() -> MockApiKeyRepository {
    let mut keys = MockApiKeyRepository::new();
    keys.expect_find().returning(|id| {
        let known = [Key::Organization, Key::OtherProject, Key::Revoked];
        Ok(known.into_iter().find(|key| key.id() == id).map(Key::stored))
    });
    keys
}

/// A store that is as far away as a real one.
struct Slowly {
    keys: MockApiKeyRepository,
    takes: Duration,
}

#[async_trait]
impl ApiKeyRepository for Slowly {
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError> {
        self.keys.insert(key).await
    }

    async fn find(&self, id: ApiKeyId) -> Result<Option<KeyWithHash>, StoreError> {
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        self.keys.find(id).await
    }

    async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<ApiKey>, StoreError> {
        self.keys.list(organization, page).await
    }

    async fn delete(&self, organization: OrganizationId, id: ApiKeyId, at: OffsetDateTime) -> Result<bool, StoreError> {
        self.keys.delete(organization, id, at).await
    }
}

fn projects() -> MockProjectRepository {
    let mut projects = MockProjectRepository::new();
    projects.expect_default_of().returning(|_| Ok(project()));
    projects
        .expect_find()
        .returning(|_, id| Ok([project_id(), other_project()].contains(&id).then(|| Project { id, ..project() })));
    projects
}

/// No session can be dialled.
struct NoWay;

impl SessionConnector for NoWay {
    fn of(&self, _: BrowserId) -> Arc<dyn BrowserConnector> {
        Arc::new(Self)
    }
}

#[async_trait]
impl BrowserConnector for NoWay {
    async fn dial(&self, _: Channel) -> Result<std::net::TcpStream, ConnectorError> {
        Err(ConnectorError::Unavailable("nobody there".into()))
    }

    async fn cdp_path(&self) -> Result<String, ConnectorError> {
        Err(ConnectorError::Unavailable("nobody there".into()))
    }
}

struct Outlooks;

impl PoolStatusSource for Outlooks {
    fn of(&self, _: PoolId) -> PoolStatus {
        PoolStatus { waiting: 3, longest_wait_seconds: 4, failed_starts: 5, blocked: Some("no_room") }
    }
}

struct Ready {
    not: Option<String>,
    degraded: Option<&'static str>,
}

#[async_trait]
impl Health for Ready {
    async fn ready(&self) -> Result<Readiness, String> {
        let readiness = self.degraded.map_or(Readiness::Whole, Readiness::Degraded);
        self.not.clone().map_or(Ok(readiness), Err)
    }
}

/// The one archive that is fine.
pub(super) const ARCHIVE: &[u8] = b"PK\x03\x04 an archive";

struct Archives;

#[async_trait]
impl ExtensionArchives for Archives {
    async fn inspect(&self, field: &str, content: ByteStream) -> Result<InspectedArchive, OperationError> {
        let whole: Vec<Bytes> = content.try_collect().await?;
        if whole.concat() != ARCHIVE {
            return Err(InvalidInput::of(field, InvalidValue::new(FieldCode::InvalidFormat, "no archive")).into());
        }
        let content = futures_util::stream::iter([Ok(Bytes::from_static(ARCHIVE))]).boxed();
        Ok(InspectedArchive { size_bytes: ARCHIVE.len() as u64, checksum: "ab".repeat(32), content })
    }
}

#[async_trait]
impl PackageArchives for Archives {
    async fn inspect(&self, entrypoint: &PackagePath, content: ByteStream) -> Result<InspectedPackage, OperationError> {
        let InspectedArchive { size_bytes, checksum, content } =
            ExtensionArchives::inspect(self, "file", content).await?;
        if entrypoint.as_str() == "missing.py" {
            let bad = InvalidValue::new(FieldCode::InvalidFormat, "is no file of the archive");
            return Err(InvalidInput::of("entrypoint_rel_path", bad).into());
        }
        Ok(InspectedPackage { size_bytes, checksum, content })
    }
}

/// A running server.
pub(super) struct TestApi {
    pub(super) server: Server,
    pub(super) tokens: SessionTokens,
    pub(super) sessions: Sessions,
    pub(super) clock: Arc<FixedClock>,
}

impl TestApi {
    pub(super) fn start(ports: Ports) -> Self {
        let clock = Arc::new(FixedClock::default());
        let ids = Arc::new(CountingIds::default());
        let activity = Activity::new(clock.clone(), clock.clone());
        let connections = ConnectionRegistry::new();
        let (session_rows, engine, wake) = (Arc::new(ports.sessions), Arc::new(ports.engine), Arc::new(ports.wake));
        let extensions = Arc::new(ports.extensions);
        let proxies = Arc::new(ports.proxies);
        let kept = ProfileVersions::new(
            Arc::new(ports.profiles),
            Arc::new(ports.profile_bytes),
            Arc::new(PlainSealer),
            clock.clone(),
        );
        let profiles = SessionProfiles::new(ProfileDeps {
            kept: kept.clone(),
            machine: Arc::new(MockProfileMachine::new()),
            reports: Arc::new(MockProfileReports::new()),
            pools: wake.clone(),
            ids: ids.clone(),
        });
        let routing = ProxyRouting::new(proxies.clone(), Arc::new(PlainSealer), Arc::new(NoRoutes), Arc::default());
        let recorder: Arc<dyn Recorder> = match ports.recorder {
            Some(mock) => Arc::new(mock),
            None => Arc::new(NoRecorder),
        };
        let sessions = Sessions::new(SessionDeps {
            node: node_id(),
            sessions: session_rows.clone(),
            browsers: Arc::new(ports.browsers),
            engine: engine.clone(),
            extensions: extensions.clone(),
            profiles: profiles.clone(),
            replays: SessionReplays::none(),
            proxies: routing.clone(),
            spares: Arc::new(ports.spares),
            connections: Arc::new(connections.clone()),
            pools: wake.clone(),
            activity,
            recorder: recorder.clone(),
            clock: clock.clone(),
            monotonic: clock.clone(),
            ids: ids.clone(),
        });
        let deps = PoolDeps {
            node: node_id(),
            pools: Arc::new(ports.pools),
            sessions: session_rows,
            line: Arc::new(super::slow_line::SlowLine {
                line: ports.line,
                takes: ports.line_takes,
                row: tokio::sync::Mutex::default(),
            }),
            tickets: Arc::new(ports.tickets),
            engine,
            extensions: extensions.clone(),
            profiles,
            proxies: routing.clone(),
            wake,
            clock: clock.clone(),
            monotonic: clock.clone(),
            ids: ids.clone(),
            max_pools: 100,
        };
        let project_rows = Arc::new(ports.projects.unwrap_or_else(projects));
        let tokens = SessionTokens::new(&TOKEN_KEY);
        let api_keys = ApiKeys::new(
            Arc::new(Slowly { keys: ports.keys.unwrap_or_else(default_keys), takes: ports.keys_take }),
            clock.clone(),
            ids.clone(),
            Arc::new(CountingIds::default()),
        );
        let directory = Arc::new(ports.directory);
        let (deployments, invocations) = (Arc::new(ports.deployments), Arc::new(ports.invocations));
        let (lines, news) = (Arc::new(ports.lines), Arc::new(ports.news));
        let deployment_deps = DeploymentDeps {
            deployments: deployments.clone(),
            invocations: invocations.clone(),
            lines: lines.clone(),
            news: news.clone(),
            blobs: Arc::new(ports.packages),
            archives: Arc::new(Archives),
            keys: api_keys.clone(),
            sealer: Arc::new(PlainSealer),
            clock: clock.clone(),
            ids: ids.clone(),
            rules: DeploymentRules {
                regions: vec![Deployments::DEFAULT_REGION.to_owned(), "home.attic".to_owned()],
                origins: vec![Deployments::DEFAULT_ORIGIN.parse().unwrap(), "http://127.0.0.1:3000".parse().unwrap()],
            },
            most: 500,
        };
        let invocation_deps = InvocationDeps {
            invocations,
            deployments,
            lines,
            news,
            sessions: sessions.clone(),
            clock: clock.clone(),
            ids: ids.clone(),
        };
        let kept_replays = ReplayArchive::new(
            Arc::new(ports.kept_replays),
            Arc::new(ports.videos),
            clock.clone(),
            ReplayLimits { most_bytes: 1 << 20, kept_for: time::Duration::days(7) },
            Arc::new(UnlimitedDisk),
        );
        let credentials = Arc::new(ports.credentials);
        let auth_connections = AuthConnections::new(AuthConnectionDeps {
            connections: Arc::new(ports.auth_connections),
            credentials: credentials.clone(),
            external: Arc::new(ports.external),
            profiles: Profiles::new(kept.clone(), clock.clone(), ids.clone(), 1000),
            proxies: routing,
            sessions: sessions.clone(),
            news: Arc::new(ports.auth_news),
            sealer: Arc::new(PlainSealer),
            entropy: Arc::new(CountingIds::default()),
            clock: clock.clone(),
            ids: ids.clone(),
            most: 500,
        });
        let services = Services {
            key_administration: KeyAdministration::new(
                api_keys.clone(),
                directory,
                project_rows.clone(),
                clock.clone(),
            ),
            api_keys,
            access: Access::new(project_rows.clone()),
            projects: Projects::new(project_rows, clock.clone(), Arc::new(CountingIds::default())),
            sessions: sessions.clone(),
            pools: Pools::new(deps.clone(), sessions.clone()),
            leases: Leases::new(deps, sessions.clone()),
            audit: AuditLogs::new(Arc::new(ports.audit), Arc::new(ports.trail.clone())),
            trail: Arc::new(ports.trail),
            files: Files::new(Arc::new(ports.files), sessions.activity().clone()),
            computers: Computers::new(Arc::new(ports.computer), sessions.activity().clone()),
            auth_connections,
            credentials: Credentials::new(CredentialDeps {
                credentials,
                sealer: Arc::new(PlainSealer),
                clock: clock.clone(),
                ids: ids.clone(),
                most: 1000,
            }),
            deployments: Deployments::new(deployment_deps),
            invocations: Invocations::new(invocation_deps),
            credential_providers: CredentialProviders::new(ProviderDeps {
                providers: Arc::new(ports.credential_providers),
                store: Arc::new(ports.credential_store),
                sealer: Arc::new(PlainSealer),
                clock: clock.clone(),
                ids: ids.clone(),
                settings: ports.provider_settings,
                most: 100,
            }),
            profiles: Profiles::new(kept, clock.clone(), ids.clone(), 1000),
            proxies: Proxies::new(ProxyDeps {
                proxies,
                sealer: Arc::new(PlainSealer),
                dialer: Arc::new(ports.dialer),
                upstreams: Arc::new(ports.upstreams),
                clock: clock.clone(),
                ids: ids.clone(),
                most: 1000,
            }),
            extensions: Extensions::new(ExtensionDeps {
                extensions,
                blobs: Arc::new(ports.blobs),
                archives: Arc::new(Archives),
                machine: Arc::new(ports.loading),
                web_store: Arc::new(ports.web_store),
                connections: Arc::new(connections.clone()),
                activity: sessions.activity().clone(),
                clock: clock.clone(),
                ids: ids.clone(),
                most: 500,
            }),
            displays: Arc::new(ports.displays),
            processes: Processes::new(Arc::new(ports.processes), sessions.activity().clone(), ids.clone()),
            session_logs: SessionLogs::new(Arc::new(ports.session_logs), sessions.activity().clone()),
            curl: Curl::new(Arc::new(ports.curl), sessions.activity().clone()),
            replays: Replays::new(Arc::new(ports.replays), kept_replays, sessions.activity().clone(), ids.clone()),
            scripts: Scripts::new(Arc::new(ports.scripts), sessions.activity().clone()),
            telemetry: TelemetryEvents::new(Arc::new(ports.events), Arc::new(ports.feed), clock.clone()),
            recorder,
            tokens: tokens.clone(),
            dial: ports.dial.unwrap_or_else(|| Arc::new(NoWay)),
            connections,
            health: Arc::new(Ready { not: ports.not_ready, degraded: ports.degraded }),
            pool_status: Arc::new(Outlooks),
            entropy: Arc::new(CountingIds::default()),
            metrics: Arc::new(|| "casement_up 1\n".to_owned()),
            monotonic: clock.clone(),
            clock: clock.clone(),
            ids: Arc::new(CountingIds::default()),
            runtime: tokio::runtime::Handle::current(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let public = ports.public_url.unwrap_or_else(|| "https://casement.test".to_owned());
        let config = Config {
            public_url: public.parse().unwrap(),
            extra_hosts: Vec::new(),
            trusted_proxies: ports.trusted_proxies.iter().map(|net| net.parse().unwrap()).collect(),
            sandbox_addresses: Vec::new(),
            cors_origins: ports.cors_origins.iter().map(|origin| origin.parse().unwrap()).collect(),
            rate_limit: ports.rate_limit.and_then(std::num::NonZeroU32::new),
            refused_limit: std::num::NonZeroU32::new(ports.refused_limit.unwrap_or(1000)).expect("one at least"),
            workers: 1,
        };
        let server = serve(config, services, listener).unwrap();
        Self { server, tokens, sessions, clock }
    }

    pub(super) fn token(&self, session: SessionId, permission: Permission) -> String {
        self.tokens.mint(session, permission, NOON)
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.local_addr()).await.unwrap()
    }

    /// Sends `raw` as it is and reads one reply.
    pub(super) async fn raw(&self, raw: impl AsRef<[u8]>) -> Reply {
        let head_only = raw.as_ref().starts_with(b"HEAD ");
        let mut stream = self.connect().await;
        let (mut read, mut write) = stream.split();
        let mut bytes = Vec::new();
        let sending = async {
            // The server may refuse before it has read everything.
            let _ = write.write_all(raw.as_ref()).await;
            std::future::pending::<()>().await;
        };
        let reading = async {
            while !is_whole(&bytes, head_only) && read.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {}
        };
        tokio::select! {
            () = sending => {}
            read = tokio::time::timeout(TIMEOUT, reading) => read.expect("a reply"),
        }
        Reply::parse(&bytes)
    }

    /// A request with these header lines and a body.
    pub(super) async fn request(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        self.raw(request(method, path, headers, body)).await
    }

    /// The same, with the organization's key.
    pub(super) async fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        let key = format!("Authorization: Bearer {}", Key::Organization.text());
        self.request(method, path, &[&key], body).await
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "").await
    }

    pub(super) async fn post(&self, path: &str, body: impl fmt::Display) -> Reply {
        self.call("POST", path, &body.to_string()).await
    }

    /// A form, closed and written out, whose edge is `b`.
    pub(super) async fn form(&self, path: &str, body: Vec<u8>) -> Reply {
        let length = format!("Content-Length: {}", body.len());
        let key = format!("Authorization: Bearer {}", Key::Organization.text());
        let lines = [key.as_str(), "Content-Type: multipart/form-data; boundary=b", &length];
        let mut raw = request("POST", path, &lines, "");
        raw.extend_from_slice(&body);
        self.raw(raw).await
    }

    pub(super) async fn patch(&self, path: &str, body: impl fmt::Display) -> Reply {
        self.call("PATCH", path, &body.to_string()).await
    }
}

/// The bytes of a request; without a `Host` line of its own it gets the public one.
pub(super) fn request(method: &str, path: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|line| line.to_ascii_lowercase().starts_with("host:")) {
        head.push_str("Host: casement.test\r\n");
    }
    for line in headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    if !body.is_empty() {
        if !headers.iter().any(|line| line.to_ascii_lowercase().starts_with("content-type:")) {
            head.push_str("Content-Type: application/json\r\n");
        }
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    head.push_str(body);
    head.into_bytes()
}

/// Whether the reply's head and as much body as it tells of are there; a connection that carried an upgrade is closed
/// only after a while.
fn is_whole(bytes: &[u8], head_only: bool) -> bool {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let reply = Reply::parse(bytes);
    let length = reply.header("content-length").and_then(|length| length.parse::<usize>().ok());
    head_only || reply.status == 204 || length.is_some_and(|length| bytes.len() >= end + 4 + length)
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no reply but {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        });
        Self { status, headers: headers.collect(), body: bytes[end + 4..].to_vec() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The error's code, after looking at the form of the error.
    pub(super) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self}");
        let body = self.json();
        assert!(body["message"].is_string(), "{self}");
        body["code"].as_str().expect("a code").to_owned()
    }

    /// `code: message` of each refused field.
    pub(super) fn details(&self) -> Vec<String> {
        let body = self.json();
        let details = body["details"].as_array().unwrap_or_else(|| panic!("no details: {self}"));
        details
            .iter()
            .map(|one| format!("{}: {}", one["code"].as_str().unwrap(), one["message"].as_str().unwrap()))
            .collect()
    }
}

/// Status, the headers that say something, body.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            let telling = !matches!(
                name.as_str(),
                "date"
                    | "content-length"
                    | "connection"
                    | "x-request-id"
                    | "cache-control"
                    | "content-type"
                    | "x-content-type-options"
            );
            if telling {
                writeln!(f, "{name}: {value}")?;
            }
        }
        f.write_str(&String::from_utf8_lossy(&self.body))
    }
}
