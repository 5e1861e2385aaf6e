//! What the server stands on, given by whoever starts it.

use std::{net::IpAddr, num::NonZeroU32, sync::Arc};

use async_trait::async_trait;
use casement_domain::{
    ApiKeyId, BrowserId, Clock, Entropy, IdSource, MonotonicClock,
    access::Access,
    api_key::{ApiKeys, KeyAdministration},
    audit::{AuditLogs, AuditTrail},
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
    pool::{Leases, Pools},
    process::Processes,
    profile::Profiles,
    project::Projects,
    proxy::Proxies,
    replay::Replays,
    script::Scripts,
    session::Sessions,
    session_log::SessionLogs,
    telemetry::{Recorder, TelemetryEvents},
};
use ipnet::IpNet;
use url::Url;

use crate::{
    audit::TrustedProxies,
    connections::ConnectionRegistry,
    cors::{Cors, Origin},
    host::Hosts,
    rate::{AddressRate, Rate},
    relay::BrowserConnector,
    token::SessionTokens,
    ui::{PoolStatusSource, SignIns},
    webdriver::ClassicSessions,
};

/// How the server is reached.
#[derive(Clone, Debug)]
pub struct Config {
    /// What clients call it; stands in every URL of an answer. No path, query or fragment is taken from it.
    pub public_url: Url,
    /// Further values of `Host` to answer to: a name alone, with any port, or `name:port`.
    pub extra_hosts: Vec<String>,
    /// Networks of proxies in front, whose word on where a call came from is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Addresses that connections from inside of sandboxes come from. They are no trusted proxy's, whatever network they are in.
    pub sandbox_addresses: Vec<IpAddr>,
    /// Sites whose pages may call the API.
    pub cors_origins: Vec<Origin>,
    /// How many calls one key may make in a second, and at once.
    pub rate_limit: Option<NonZeroU32>,
    /// How many credentials that are refused an address may show in a second, and twenty times as many at once.
    pub refused_limit: NonZeroU32,
    /// Threads that serve connections; 2 to 4 are plenty, the work is elsewhere.
    pub workers: usize,
}

/// Finds the way into a session's browser.
pub trait SessionConnector: Send + Sync {
    /// The way into that browser. Whether it still runs shows when it is dialled.
    fn of(&self, browser: BrowserId) -> Arc<dyn BrowserConnector>;
}

/// Whether the server can do its work.
#[async_trait]
pub trait Health: Send + Sync {
    /// # Errors
    /// What is not ready, for people.
    async fn ready(&self) -> Result<Readiness, String>;
}

/// How a server is that can do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// All of it.
    Whole,
    /// All but what can be missed: this, for people.
    Degraded(&'static str),
}

/// The use cases and ports that requests reach.
pub struct Services {
    /// Who calls.
    pub api_keys: ApiKeys,
    /// Keys, as an administrator sees them.
    pub key_administration: KeyAdministration,
    /// In which project.
    pub access: Access,
    /// Projects, and the limits.
    pub projects: Projects,
    /// Sessions.
    pub sessions: Sessions,
    /// Pools.
    pub pools: Pools,
    /// Leases of pools.
    pub leases: Leases,
    /// What was called, to be read.
    pub audit: AuditLogs,
    /// What is called, to be written.
    pub trail: Arc<dyn AuditTrail>,
    /// Files of sessions.
    pub files: Files,
    /// Mouse, keyboard and clipboard.
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
    /// Programs inside sessions.
    pub processes: Processes,
    /// Logs of sessions.
    pub session_logs: SessionLogs,
    /// Requests through the browsers of sessions.
    pub curl: Curl,
    /// Recordings.
    pub replays: Replays,
    /// Shows the displays of sessions that have one.
    pub displays: Arc<dyn LiveDisplay>,
    /// Scripts.
    pub scripts: Scripts,
    /// What happened in sessions, to be read.
    pub telemetry: TelemetryEvents,
    /// What happens in sessions, to be noted.
    pub recorder: Arc<dyn Recorder>,
    /// Tokens in the URLs of sessions.
    pub tokens: SessionTokens,
    /// Ways into sessions.
    pub dial: Arc<dyn SessionConnector>,
    /// The open connections; the same registry is the domain's port `Connections`.
    pub connections: ConnectionRegistry,
    /// Whether the server can do its work.
    pub health: Arc<dyn Health>,
    /// The text of `/metrics`.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// How it goes with the pools, for the pages.
    pub pool_status: Arc<dyn PoolStatusSource>,
    /// Chance, for the sessions of the pages.
    pub entropy: Arc<dyn Entropy>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// How it passes.
    pub monotonic: Arc<dyn MonotonicClock>,
    /// Identifiers of requests.
    pub ids: Arc<dyn IdSource>,
    /// Where work goes on whose caller has gone. Not a thread of this server: those end with it.
    pub runtime: tokio::runtime::Handle,
}

/// What every request reaches.
pub(crate) struct Api {
    /// A call in flight may hold on to it; thousands wait at a time, so it is shared, not copied.
    pub(crate) services: Arc<Services>,
    pub(crate) public_url: Url,
    pub(crate) hosts: Hosts,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) cors: Cors,
    pub(crate) rate: Rate<ApiKeyId>,
    /// Credentials that were refused, by address.
    pub(crate) refused: AddressRate,
    pub(crate) sign_ins: SignIns,
    pub(crate) classic_sessions: ClassicSessions,
    pub(crate) draining: Arc<std::sync::atomic::AtomicBool>,
}
