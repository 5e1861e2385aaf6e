//! Configuration and services of the server, supplied by the program that starts it.

use std::{net::IpAddr, num::NonZeroU32, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::{
    ApiKeyId, BrowserId, Clock, IdSource, MonotonicClock, NodeId,
    access::Access,
    api_key::{ApiKeys, KeyAdministration},
    audit::{AuditLogs, AuditTrail},
    audit_destination::AuditDestinations,
    auth_connection::AuthConnections,
    computer::Computers,
    credential::Credentials,
    credential_provider::CredentialProviders,
    curl::Curl,
    deployment::Deployments,
    extension::Extensions,
    fs::Files,
    invocation::Invocations,
    live_view::LiveDisplay,
    network::DeniedRequestLog,
    node::{Nodes, OwnState, Placement},
    pool::{Leases, PeerRequests, Pools},
    process::Processes,
    profile::Profiles,
    project::Projects,
    proxy::Proxies,
    replay::Replays,
    script::Scripts,
    session::Sessions,
    session_log::SessionLogs,
    sign_in::SignIns,
    storage::DiskSpace,
    telemetry::{Recorder, TelemetryEvents},
    telemetry_destination::TelemetryDestinations,
    webmcp::PageTools,
};
use ipnet::IpNet;
use url::Url;

use crate::{
    audit::TrustedProxies,
    cluster::{Cluster, Owners},
    connections::ConnectionRegistry,
    cors::{Cors, Origin},
    host::Hosts,
    live_view::ViewPlaces,
    permissions::RoutePermissions,
    pool_status::PoolStatusSource,
    public_url::PublicUrl,
    rate::{AddressRate, Rate},
    relay::BrowserConnector,
    spool::Spool,
    tls::ServerCertificate,
    token::SessionTokens,
    ui::SignInAttempts,
    webdriver::{ClassicSessions, RemoteUploads},
};

/// Settings of the HTTP server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The public base URL. Every URL in a response begins with it; its path, query and fragment are ignored.
    pub public_url: Url,
    /// Whether URLs in a response begin with the host of its request instead, if that is accepted.
    pub follows_host: bool,
    /// The certificate for HTTPS; `None`: plain HTTP.
    pub certificate: Option<ServerCertificate>,
    /// Additional accepted values of the `Host` header: a name alone, with any port, or `name:port`.
    pub extra_hosts: Vec<String>,
    /// Networks of reverse proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Source addresses of connections from inside sandboxes. They are never trusted as proxies.
    pub sandbox_addresses: Vec<IpAddr>,
    /// Origins whose pages may call the API (CORS).
    pub cors_origins: Vec<Origin>,
    /// The maximum number of calls per second with one API key, which is also the burst size. `None`: no limit.
    pub rate_limit: Option<NonZeroU32>,
    /// The maximum number of refused credentials per second from one address. The burst is twenty times as many.
    pub refused_limit: NonZeroU32,
    /// The number of threads that serve connections. 2 to 4 suffice, because most of the work happens elsewhere.
    pub workers: usize,
    /// A directory on a disk, where uploaded files wait for the rest of their form. The files have no names.
    pub spool_directory: PathBuf,
}

/// Creates connectors to the browsers of sessions.
pub trait SessionConnector: Send + Sync {
    /// Returns the connector to a browser. Only [`BrowserConnector::dial`] finds out whether the browser still runs.
    fn connector(&self, browser: BrowserId) -> Arc<dyn BrowserConnector>;

    /// Returns the description of the DevTools protocol of this program's browsers, as JSON. It says nothing about any
    /// browser. Default: there is none.
    fn protocol(&self) -> Option<Bytes> {
        None
    }
}

/// Traces calls.
pub trait CallTracing: Send + Sync {
    /// Begins to trace a call whose span is new. `traceparent` and `tracestate`: the headers by which the caller names
    /// its trace. Returns the id of the trace if the call is traced.
    fn begin(
        &self,
        span: &tracing::Span,
        method: &str,
        traceparent: Option<&str>,
        tracestate: Option<&str>,
    ) -> Option<String>;

    /// Completes the span of a call. `route`: the pattern of its path.
    fn end(&self, span: &tracing::Span, method: &str, route: &str, status: u16);
}

/// Reports whether the server can do its work.
#[async_trait]
pub trait Health: Send + Sync {
    /// Checks the readiness of the server.
    ///
    /// # Errors
    /// The part that is not ready, as a text for people.
    async fn ready(&self) -> Result<Readiness, String>;
}

/// The state of a server that can do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Every part works.
    Whole,
    /// An optional part does not work, which the text names for people.
    Degraded(&'static str),
    /// The node is draining or drained: it takes no new sessions.
    Draining,
}

/// The use cases and ports that requests reach.
pub struct Services {
    /// This node.
    pub node: NodeId,
    /// This node among the nodes of its database; `None`: other nodes do not reach it.
    pub cluster: Option<Cluster>,
    /// Chooses the nodes of new sessions.
    pub placement: Placement,
    /// What this node does on request of other nodes.
    pub peer_requests: PeerRequests,
    /// Authenticates API keys.
    pub api_keys: ApiKeys,
    /// Creates, lists and revokes API keys.
    pub key_administration: KeyAdministration,
    /// Resolves the project of a call.
    pub access: Access,
    /// Projects and their limits.
    pub projects: Projects,
    /// Sessions.
    pub sessions: Sessions,
    /// Pools.
    pub pools: Pools,
    /// Leases of pools.
    pub leases: Leases,
    /// Reads audit records.
    pub audit: AuditLogs,
    /// The buckets to which audit records are exported.
    pub audit_destinations: AuditDestinations,
    /// The nodes of the installation.
    pub nodes: Nodes,
    /// What this process knows of its own node.
    pub own: OwnState,
    /// Writes audit records.
    pub trail: Arc<dyn AuditTrail>,
    /// Files of sessions.
    pub files: Files,
    /// Mouse, keyboard and clipboard of sessions.
    pub computers: Computers,
    /// Auth connections.
    pub auth_connections: AuthConnections,
    /// Credentials.
    pub credentials: Credentials,
    /// Deployments and their apps.
    pub deployments: Deployments,
    /// Invocations.
    pub invocations: Invocations,
    /// Credential providers.
    pub credential_providers: CredentialProviders,
    /// Profiles.
    pub profiles: Profiles,
    /// Proxies.
    pub proxies: Proxies,
    /// Extensions.
    pub extensions: Extensions,
    /// Processes inside sessions.
    pub processes: Processes,
    /// Logs of sessions.
    pub session_logs: SessionLogs,
    /// HTTP requests through the browsers of sessions.
    pub curl: Curl,
    /// Recorded videos of sessions.
    pub replays: Replays,
    /// Frames of the displays of sessions that have one.
    pub displays: Arc<dyn LiveDisplay>,
    /// Playwright scripts that run against sessions.
    pub scripts: Scripts,
    /// The tools that pages of sessions offer.
    pub page_tools: PageTools,
    /// Reads telemetry events.
    pub telemetry: TelemetryEvents,
    /// The telemetry destinations.
    pub telemetry_destinations: TelemetryDestinations,
    /// Records telemetry events.
    pub recorder: Arc<dyn Recorder>,
    /// Sign-ins to the web interface.
    pub sign_ins: SignIns,
    /// Tokens in the URLs of sessions.
    pub tokens: SessionTokens,
    /// The requests that network configurations refused.
    pub denied_requests: Arc<dyn DeniedRequestLog>,
    /// Connects to the browsers of sessions.
    pub session_connector: Arc<dyn SessionConnector>,
    /// The open connections; the same registry is the domain's port `Connections`.
    pub connections: ConnectionRegistry,
    /// Traces calls; `None`: calls are not traced.
    pub tracing: Option<Arc<dyn CallTracing>>,
    /// Reports whether the server can do its work.
    pub health: Arc<dyn Health>,
    /// Renders the text of `/metrics`.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The status of pools, for the web interface.
    pub pool_status: Arc<dyn PoolStatusSource>,
    /// The free space of the disk with [`Config::spool_directory`].
    pub disk: Arc<dyn DiskSpace>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The monotonic clock.
    pub monotonic: Arc<dyn MonotonicClock>,
    /// The source of request ids.
    pub ids: Arc<dyn IdSource>,
    /// The runtime of work that must finish even if its client has disconnected. It is not a thread of this server,
    /// because those end with the server.
    pub runtime: tokio::runtime::Handle,
}

/// The shared state that every request reaches.
pub(crate) struct Api {
    /// The services. They are shared, because thousands of waiting calls may hold them at a time.
    pub(crate) services: Arc<Services>,
    pub(crate) public_url: PublicUrl,
    pub(crate) hosts: Hosts,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) cors: Cors,
    pub(crate) rate: Rate<ApiKeyId>,
    /// The rate of refused credentials per address.
    pub(crate) refused: AddressRate,
    pub(crate) sign_in_attempts: SignInAttempts,
    pub(crate) permissions: RoutePermissions,
    pub(crate) classic_sessions: ClassicSessions,
    pub(crate) remote_uploads: RemoteUploads,
    /// The open live views of sessions of this node.
    pub(crate) view_places: ViewPlaces,
    pub(crate) spool: Spool,
    /// The owners of recent sessions.
    pub(crate) owners: Owners,
    pub(crate) draining: Arc<std::sync::atomic::AtomicBool>,
}

impl Api {
    /// Returns whether a node is another one.
    pub(crate) fn is_elsewhere(&self, node: NodeId) -> bool {
        node != self.services.node
    }

    /// Returns whether clients reach the server over HTTPS.
    pub(crate) fn is_https(&self) -> bool {
        self.public_url.is_https()
    }
}
