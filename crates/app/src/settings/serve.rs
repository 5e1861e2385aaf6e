//! The settings of `casement serve`.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::Context as _;
use casement_domain::auth_connection::AuthConnections;
use casement_domain::credential::Credentials;
use casement_domain::extension::Extensions;
use casement_domain::network::LentHost;
use casement_domain::organization::Caps;
use casement_domain::pool::Pools;
use casement_domain::profile::Profiles;
use casement_domain::proxy::{BadUpstream, Proxies, ProxyGateways, ProxyType, Upstream};
use casement_domain::storage::StorageBudgets;
use casement_egress::Allow;
use casement_http::Origin;
use clap::Args;
use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::DataDir;
use super::audit_export::AuditExportSettings;
use super::blobs::BlobSettings;
use super::browsers::BrowserSettings;
use super::cluster::ClusterSettings;
use super::grid::GridSettings;
use super::node::NodeSettings;
use super::values::{
    host_and_port, host_name, listen_address, named_file, plain_url, public_url, ratio, registry_url, trusted_proxy,
};

#[derive(Debug, Args)]
pub(crate) struct ServeSettings {
    /// The address to listen on; port 0 selects a free one
    #[arg(long, value_name = "ADDR", env = "CASEMENT_LISTEN", default_value = "127.0.0.1:8080", value_parser = listen_address)]
    pub(crate) listen: SocketAddr,
    /// The form of the log's lines; the variable CASEMENT_LOG sets what is logged
    #[arg(long, value_name = "FORMAT", env = "CASEMENT_LOG_FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) cluster: ClusterSettings,
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// The URL of a PostgreSQL server [default: a private one in the data directory]
    #[arg(long, value_name = "URL", env = "CASEMENT_DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
    #[command(flatten)]
    pub(crate) blobs: BlobSettings,
    /// The file with the certificate chain of this server in PEM form, for HTTPS; read again when it changes [default:
    /// plain HTTP]
    #[arg(long, value_name = "FILE", env = "CASEMENT_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The file with the private key of the certificate in PEM form
    #[arg(long, value_name = "FILE", env = "CASEMENT_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The URL by which clients reach this server [default: http:// or, with a certificate, https://, and the listen
    /// address; of a server that listens on all addresses, the host of each request]
    #[arg(long, value_name = "URL", env = "CASEMENT_PUBLIC_URL", value_parser = public_url)]
    pub(crate) public_url: Option<Url>,
    /// A further host name of this server, with one port or with any; may be given several times
    #[arg(
        long = "allowed-host",
        value_name = "HOST[:PORT]",
        env = "CASEMENT_ALLOWED_HOST",
        value_delimiter = ',',
        value_parser = host_name,
        action = clap::ArgAction::Append
    )]
    pub(crate) allowed_hosts: Vec<String>,
    /// A private address or name that pages may reach; may be given several times
    #[arg(
        long,
        value_name = "CIDR|HOST",
        env = "CASEMENT_EGRESS_ALLOW",
        value_delimiter = ',',
        action = clap::ArgAction::Append
    )]
    pub(crate) egress_allow: Vec<Allow>,
    /// A private host that sessions of one project may ask for with `network.private_hosts`; may be given several times
    #[arg(
        long,
        value_name = "PROJECT=CIDR|HOST",
        env = "CASEMENT_EGRESS_LEND",
        value_delimiter = ',',
        action = clap::ArgAction::Append
    )]
    pub(crate) egress_lend: Vec<LentHost>,
    /// The key under which secrets are sealed, 32 bytes in base64; several, separated by commas: the first seals, all
    /// open [default: a file in the data directory, created at the first start]
    #[arg(long, value_name = "KEY", env = "CASEMENT_MASTER_KEY", hide_env_values = true)]
    pub(crate) master_key: Option<SecretString>,
    /// A URL that responds with its client's address as plain text; requested through each proxy that is checked
    #[arg(long, value_name = "URL", env = "CASEMENT_PROXY_CHECK_URL", value_parser = plain_url)]
    pub(crate) proxy_check_url: Option<Url>,
    #[command(flatten)]
    pub(crate) upstreams: ProxyGatewaySettings,
    /// A proxy in front of this server, whose X-Forwarded-For is trusted; may be given several times
    #[arg(
        long = "trusted-proxy",
        value_name = "CIDR",
        env = "CASEMENT_TRUSTED_PROXY",
        value_delimiter = ',',
        value_parser = trusted_proxy,
        action = clap::ArgAction::Append
    )]
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// A site whose pages may call the API from a browser; may be given several times
    #[arg(
        long = "cors-origin",
        value_name = "ORIGIN",
        env = "CASEMENT_CORS_ORIGIN",
        value_delimiter = ',',
        action = clap::ArgAction::Append
    )]
    pub(crate) cors_origins: Vec<Origin>,
    /// The maximum number of calls of each key per second, and at once [default: unlimited]
    #[arg(long, value_name = "N", env = "CASEMENT_RATE_LIMIT")]
    pub(crate) rate_limit: Option<NonZeroU32>,
    /// The days for which audit records are stored
    #[arg(long, value_name = "N", env = "CASEMENT_AUDIT_DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) audit_days: u32,
    #[command(flatten)]
    pub(crate) audit_export: AuditExportSettings,
    /// The days for which telemetry is stored, also of ended sessions
    #[arg(long, value_name = "N", env = "CASEMENT_TELEMETRY_DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) telemetry_days: u32,
    /// The days for which ended sessions are stored, with their names and tags; longer while a replay or telemetry of them
    /// is stored
    #[arg(long, value_name = "N", env = "CASEMENT_SESSION_DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) session_days: u32,
    /// The days for which deleted projects, API keys, pools, proxies and profiles are stored, with their names; longer while
    /// something refers to them
    #[arg(long, value_name = "N", env = "CASEMENT_DELETED_DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) deleted_days: u32,
    /// The days for which the timeline of an auth connection has a login or a check after its end
    #[arg(long, value_name = "N", env = "CASEMENT_LOGIN_DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) login_days: u32,
    /// The URLs in telemetry: whole except for a user and a password, or without query and fragment
    #[arg(long, value_name = "WHAT", env = "CASEMENT_TELEMETRY_URLS", value_enum, default_value_t)]
    pub(crate) telemetry_urls: TelemetryUrls,
    /// The days for which replays are stored after their session's end
    #[arg(long, value_name = "N", env = "CASEMENT_REPLAY_DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) replay_days: u32,
    /// The storage of replays of ended sessions in MiB; further replays are reported as failed
    #[arg(long, value_name = "MIB", env = "CASEMENT_REPLAY_STORAGE", default_value_t = 10_240, value_parser = clap::value_parser!(u64).range(0..=67_108_864))]
    pub(crate) replay_storage: u64,
    #[command(flatten)]
    pub(crate) storage: StorageSettings,
    /// The URL of an OpenTelemetry collector for sessions' telemetry over OTLP/HTTP, without /v1/logs [default: none]
    #[arg(long, value_name = "URL", env = "CASEMENT_OTLP_ENDPOINT", value_parser = plain_url)]
    pub(crate) otlp_endpoint: Option<Url>,
    /// The share of calls whose traces are exported to the collector, from 0 to 1; calls of a caller that sends
    /// `traceparent` are traced as it has decided [default: no traces]
    #[arg(long, value_name = "RATIO", env = "CASEMENT_OTLP_TRACES", value_parser = ratio)]
    pub(crate) otlp_traces: Option<f64>,
    /// A header for the collector, as NAME=VALUE; may be given several times
    #[arg(
        long = "otlp-header",
        value_name = "HEADER",
        env = "CASEMENT_OTLP_HEADER",
        hide_env_values = true,
        value_delimiter = ',',
        action = clap::ArgAction::Append
    )]
    pub(crate) otlp_headers: Vec<SecretString>,
    /// Do not create the pool default at the first start
    #[arg(long, env = "CASEMENT_NO_DEFAULT_POOL", value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) no_default_pool: bool,
    /// The warm browsers of each common shape that this node keeps for sessions on demand
    #[arg(long, value_name = "N", env = "CASEMENT_SPARES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) spares: u32,
    /// The URL of the Chrome Web Store's downloads, for example of a mirror
    #[arg(long, value_name = "URL", env = "CASEMENT_WEB_STORE_URL", default_value = crate::web_store::STORE)]
    pub(crate) web_store_url: Url,
    /// The 1Password Connect server of credential providers without one
    #[arg(long, value_name = "URL", env = "CASEMENT_PASSWORD_MANAGER_URL", value_parser = plain_url)]
    pub(crate) password_manager_url: Option<Url>,
    /// A KeePass database that credential providers may name; may be given several times
    #[arg(
        long = "keepass-vault",
        value_name = "NAME=FILE",
        env = "CASEMENT_KEEPASS_VAULT",
        value_delimiter = ',',
        value_parser = named_file,
        action = clap::ArgAction::Append
    )]
    pub(crate) keepass_vaults: Vec<(String, PathBuf)>,
    /// A private address or name of credential providers, besides those that pages may reach; may be given several
    /// times
    #[arg(
        long,
        value_name = "CIDR|HOST",
        env = "CASEMENT_CREDENTIAL_PROVIDER_ALLOW",
        value_delimiter = ',',
        action = clap::ArgAction::Append
    )]
    pub(crate) credential_provider_allow: Vec<Allow>,
    #[command(flatten)]
    pub(crate) node: NodeSettings,
    #[command(flatten)]
    pub(crate) browsers: BrowserSettings,
    #[command(flatten)]
    pub(crate) grids: GridSettings,
    /// The folder of the script runner, with Node and Playwright [default: ../runner or ../lib/casement/runner beside
    /// the program]
    #[arg(long, value_name = "DIR", env = "CASEMENT_SCRIPT_RUNNER")]
    pub(crate) script_runner: Option<PathBuf>,
    /// The limit of a session's files in MiB, in memory: half in its home directory, half in /tmp
    #[arg(long, value_name = "MIB", env = "CASEMENT_SESSION_DISK", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(128..=1_048_576))]
    pub(crate) session_disk: u64,
    #[command(flatten)]
    pub(crate) limits: LimitSettings,
    #[command(flatten)]
    pub(crate) builds: BuildSettings,
    #[command(flatten)]
    pub(crate) apps: AppSettings,
}

/// The storage limits for data of pages and apps.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct StorageSettings {
    /// The stored telemetry of one session in MiB; further events are counted
    #[arg(long, value_name = "MIB", env = "CASEMENT_SESSION_STORAGE", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=67_108_864))]
    session_storage: u64,
    /// The stored telemetry and app logs of one project in MiB
    #[arg(long, value_name = "MIB", env = "CASEMENT_PROJECT_STORAGE", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=67_108_864))]
    project_storage: u64,
    /// The telemetry and app logs that this node stores, in MiB
    #[arg(long, value_name = "MIB", env = "CASEMENT_NODE_STORAGE", default_value_t = 16_384, value_parser = clap::value_parser!(u64).range(1..=67_108_864))]
    node_storage: u64,
    /// The disk space that telemetry, app logs and replays leave free, in MiB; at most a tenth of the disk
    #[arg(long, value_name = "MIB", env = "CASEMENT_DISK_RESERVE", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(0..=67_108_864))]
    disk_reserve: u64,
}

impl StorageSettings {
    pub(crate) fn budgets(self) -> StorageBudgets {
        let bytes = |mib: u64| mib << 20;
        StorageBudgets {
            session: bytes(self.session_storage),
            project: bytes(self.project_storage),
            node: bytes(self.node_storage),
        }
    }

    /// Returns the free space to keep, in bytes.
    pub(crate) fn disk_reserve(self) -> u64 {
        self.disk_reserve << 20
    }
}

/// The form of the log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people: time, level, and fields as name=value
    #[default]
    Text,
    /// For programs that collect logs: one JSON object a line
    Json,
}

/// The parts of URLs that telemetry contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TelemetryUrls {
    /// With query and fragment
    #[default]
    Full,
    /// Up to the query or the fragment
    WithoutQuery,
}

/// The gateways of providers that rent proxies.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProxyGatewaySettings {
    /// The gateway of rented proxies of the type datacenter, as
    /// http://user[-country-{country}]:password@gate.example:7000 [default: none]
    #[arg(long, value_name = "URL", env = "CASEMENT_DATACENTER_UPSTREAM", hide_env_values = true)]
    datacenter_upstream: Option<SecretString>,
    /// The same for the type isp
    #[arg(long, value_name = "URL", env = "CASEMENT_ISP_UPSTREAM", hide_env_values = true)]
    isp_upstream: Option<SecretString>,
    /// The same for the type residential
    #[arg(long, value_name = "URL", env = "CASEMENT_RESIDENTIAL_UPSTREAM", hide_env_values = true)]
    residential_upstream: Option<SecretString>,
    /// The same for the type mobile
    #[arg(long, value_name = "URL", env = "CASEMENT_MOBILE_UPSTREAM", hide_env_values = true)]
    mobile_upstream: Option<SecretString>,
}

impl ProxyGatewaySettings {
    /// Parses the gateways. An error names the setting but not its value.
    pub(crate) fn read(&self) -> anyhow::Result<ProxyGateways> {
        let given = [
            (ProxyType::Datacenter, &self.datacenter_upstream),
            (ProxyType::Isp, &self.isp_upstream),
            (ProxyType::Residential, &self.residential_upstream),
            (ProxyType::Mobile, &self.mobile_upstream),
        ];
        let given = given.into_iter().filter_map(|(kind, url)| Some((kind, url.as_ref()?)));
        given
            .map(|(kind, url)| Ok((kind, upstream(url).with_context(|| format!("--{}-upstream", kind.as_str()))?)))
            .collect()
    }
}

fn upstream(url: &SecretString) -> anyhow::Result<Upstream> {
    let url = Url::parse(url.expose_secret()).map_err(|_| BadUpstream::Address)?;
    Ok(Upstream::parse(&url)?)
}

/// The limits of concurrent work and of stored resources.
#[derive(Clone, Debug, Args)]
pub(crate) struct LimitSettings {
    /// The organization's maximum number of concurrent sessions, including the sizes of pools; 0 is no limit [default:
    /// unchanged; 50 at first]
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_CONCURRENT_SESSIONS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) max_concurrent_sessions: Option<u32>,
    /// The maximum size of the organization's pools together; 0 is no limit [default: unchanged; 50 at first]
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_POOLED_SESSIONS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) max_pooled_sessions: Option<u32>,
    /// The organization's maximum number of queued or running invocations; 0 is no limit [default: unchanged; 100 at
    /// first]
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_CONCURRENT_INVOCATIONS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) max_concurrent_invocations: Option<u32>,
    /// The maximum number of pools in a project
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_POOLS", default_value_t = Pools::DEFAULT_MAX_POOLS)]
    pub(crate) max_pools: u32,
    /// The maximum number of profiles in a project
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_PROFILES", default_value_t = Profiles::DEFAULT_MAX)]
    pub(crate) max_profiles: u32,
    /// The maximum number of proxies in a project
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_PROXIES", default_value_t = Proxies::DEFAULT_MAX)]
    pub(crate) max_proxies: u32,
    /// The maximum number of credentials in a project
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_CREDENTIALS", default_value_t = Credentials::DEFAULT_MAX)]
    pub(crate) max_credentials: u32,
    /// The maximum number of extensions in a project
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_EXTENSIONS", default_value_t = Extensions::DEFAULT_MAX)]
    pub(crate) max_extensions: u32,
    /// The maximum number of auth connections in a project
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_AUTH_CONNECTIONS", default_value_t = AuthConnections::DEFAULT_MAX)]
    pub(crate) max_auth_connections: u32,
}

impl LimitSettings {
    /// Returns the organization's limits; unset ones stay as in `current`.
    pub(crate) fn caps(&self, current: Caps) -> Caps {
        let limit = |setting: Option<u32>, current| setting.map_or(current, |max| (max > 0).then_some(max));
        Caps {
            concurrent_sessions: limit(self.max_concurrent_sessions, current.concurrent_sessions),
            pooled_sessions: limit(self.max_pooled_sessions, current.pooled_sessions),
            concurrent_invocations: limit(self.max_concurrent_invocations, current.concurrent_invocations),
        }
    }
}

/// The settings of deployments and invocations.
#[derive(Clone, Debug, Args)]
pub(crate) struct AppSettings {
    /// An origin of Git repositories from which deployments may be fetched; may be given several times
    #[arg(
        long = "git-origin",
        value_name = "ORIGIN",
        env = "CASEMENT_GIT_ORIGIN",
        value_delimiter = ',',
        value_parser = public_url,
        default_value = casement_domain::deployment::Deployments::DEFAULT_ORIGIN,
        action = clap::ArgAction::Append
    )]
    pub(crate) git_origins: Vec<Url>,
    /// A region that deployments may name; the first one is the default; may be given several times
    #[arg(
        long = "region",
        value_name = "PROVIDER.ZONE",
        env = "CASEMENT_REGION",
        value_delimiter = ',',
        default_value = casement_domain::deployment::Deployments::DEFAULT_REGION,
        action = clap::ArgAction::Append
    )]
    pub(crate) regions: Vec<String>,
    /// The maximum number of invocations that this node runs at a time; further ones are queued
    #[arg(long, value_name = "N", env = "CASEMENT_APP_PARALLEL", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) app_parallel: u32,
    /// The number of most recently invoked deployments for which this node keeps a loaded process
    #[arg(long, value_name = "N", env = "CASEMENT_APP_READY", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) app_ready: u32,
    /// The days for which ended invocations are stored
    #[arg(long, value_name = "N", env = "CASEMENT_INVOCATION_DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) invocation_days: u32,
    /// The days for which the log of a build or of an invocation is stored after its last line
    #[arg(long, value_name = "N", env = "CASEMENT_APP_LOG_DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) app_log_days: u32,
}

/// The environment of builds.
#[derive(Clone, Debug, Args)]
pub(crate) struct BuildSettings {
    /// A package registry for builds, besides PyPI and npm's registry; may be given several times
    #[arg(
        long = "build-registry",
        value_name = "HOST:PORT",
        env = "CASEMENT_BUILD_REGISTRY",
        value_delimiter = ',',
        value_parser = host_and_port,
        action = clap::ArgAction::Append
    )]
    pub(crate) build_registries: Vec<String>,
    /// The package index for pip [default: PyPI]
    #[arg(long, value_name = "URL", env = "CASEMENT_PIP_INDEX", value_parser = registry_url)]
    pub(crate) pip_index: Option<Url>,
    /// The package registry for npm [default: npm's own]
    #[arg(long, value_name = "URL", env = "CASEMENT_NPM_REGISTRY", value_parser = registry_url)]
    pub(crate) npm_registry: Option<Url>,
}
