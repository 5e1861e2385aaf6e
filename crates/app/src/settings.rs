//! The settings of the program: flags, variables of the same name, or a file.

mod values;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::Context as _;
use casement_domain::auth_connection::AuthConnections;
use casement_domain::credential::Credentials;
use casement_domain::extension::Extensions;
use casement_domain::organization::Caps;
use casement_domain::pool::Pools;
use casement_domain::profile::Profiles;
use casement_domain::proxy::{BadUpstream, Proxies, ProxyGateways, ProxyType, Upstream};
use casement_domain::storage::StorageBudgets;
use casement_egress::Allow;
use casement_http::Origin;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use self::values::{host_and_port, host_name, named_file, plain_url, public_url, registry_url, trusted_proxy};
use crate::config_file;
use crate::remote;

/// Real browsers for other programs.
#[derive(Debug, Parser)]
#[command(name = "casement", version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// A file that says what flags and variables do not [default: /etc/casement/casement.toml as root, else
    /// $XDG_CONFIG_HOME/casement/casement.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE", env = "CASEMENT_CONFIG")]
    config: Option<PathBuf>,
}

impl Arguments {
    /// Reads the settings of this process. Ends it if the command line is invalid or asks for help.
    ///
    /// # Errors
    /// If the configuration file is invalid.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let alone = Self::parse();
        // These commands need no configuration; the agent does not run on the host.
        let needs_none = matches!(
            alone.command,
            Command::Agent { .. } | Command::Inside | Command::Network { .. } | Command::Openapi { .. }
        );
        let Some(path) = (if needs_none { None } else { config_file::find(alone.config.clone()) }) else {
            return Ok(alone);
        };
        let matches = config_file::apply(&path, Self::command())?.get_matches();
        Ok(Self::from_arg_matches(&matches)?)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(Box<ServeSettings>),
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Keys(KeysCommand),
    /// The key that secrets are sealed under
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Look whether this host gives what Casement needs, and say what to do where it does not
    Doctor(DoctorSettings),
    /// Stop the server; sessions go on and are found again by its next start
    Stop(StopSettings),
    /// Deploy a program, and show how it is built
    Deploy(remote::DeployCommand),
    /// Run an action of an app, and print its result
    Invoke(remote::InvokeCommand),
    /// Show what a build or a call writes, to its end
    Logs(remote::LogsCommand),
    /// Print the OpenAPI document
    Openapi {
        /// Print the table of operations instead, as Markdown
        #[arg(long)]
        operations: bool,
    },
    /// The first program in a session's sandbox
    #[command(hide = true)]
    Agent {
        /// Its configuration
        #[arg(default_value = casement_agent_protocol::CONFIG_PATH)]
        config: PathBuf,
    },
    /// The first program in the sandbox of a program that is deployed
    #[command(hide = true)]
    Inside,
    /// Prepares the network of such a sandbox
    #[command(hide = true)]
    Network {
        /// Its address, and the command that makes the sandbox
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Answers one question about a KeePass database
    #[command(hide = true)]
    Keepass {
        /// The database
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorSettings {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The folder of the script runner [default: beside the program]
    #[arg(long, value_name = "DIR", env = "CASEMENT_SCRIPT_RUNNER")]
    pub(crate) script_runner: Option<PathBuf>,
}

/// The location of this installation's data.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataDir {
    /// Key, private database, sandboxes [default: /var/lib/casement as root, else $XDG_DATA_HOME/casement]
    #[arg(long = "data-dir", value_name = "DIR", env = "CASEMENT_DATA_DIR")]
    dir: Option<PathBuf>,
}

impl DataDir {
    /// Returns the directory as an absolute path.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib/casement"),
            None => {
                let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
                variable("XDG_DATA_HOME")
                    .or_else(|| variable("HOME").map(|home| home.join(".local/share")))
                    .ok_or_else(|| anyhow::anyhow!("neither XDG_DATA_HOME nor HOME is set: give --data-dir"))?
                    .join("casement")
            }
        };
        Ok(std::path::absolute(dir)?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeSettings {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", env = "CASEMENT_LISTEN", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// A PostgreSQL server of yours [default: a private one in the data directory]
    #[arg(long, value_name = "URL", env = "CASEMENT_DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
    /// How clients reach this server [default: http:// and the listen address]
    #[arg(long, value_name = "URL", env = "CASEMENT_PUBLIC_URL", value_parser = public_url)]
    pub(crate) public_url: Option<Url>,
    /// Another name that this server goes by, with a port or with any; may be given several times
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
    /// The key under which passwords of proxies are sealed, 32 bytes in base64; several, separated by commas: the first seals, all
    /// open [default: a file in the data directory, made at the first start]
    #[arg(long, value_name = "KEY", env = "CASEMENT_MASTER_KEY", hide_env_values = true)]
    pub(crate) master_key: Option<SecretString>,
    /// An address that answers with the address it is asked from, as plain text; asked through each proxy that is checked
    #[arg(long, value_name = "URL", env = "CASEMENT_PROXY_CHECK_URL", value_parser = plain_url)]
    pub(crate) proxy_check_url: Option<Url>,
    #[command(flatten)]
    pub(crate) upstreams: ProxyGatewaySettings,
    /// A proxy in front of this server, whose X-Forwarded-For is believed; may be given several times
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
    /// How many calls each key may make in a second, and at once [default: any number]
    #[arg(long, value_name = "N", env = "CASEMENT_RATE_LIMIT")]
    pub(crate) rate_limit: Option<NonZeroU32>,
    /// For how many days audit records are kept
    #[arg(long, value_name = "N", env = "CASEMENT_AUDIT_DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) audit_days: u32,
    /// For how many days telemetry of sessions is kept, of those that have ended too
    #[arg(long, value_name = "N", env = "CASEMENT_TELEMETRY_DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) telemetry_days: u32,
    /// How much telemetry tells of addresses: all but a user and a password in them, or neither query nor fragment
    #[arg(long, value_name = "WHAT", env = "CASEMENT_TELEMETRY_URLS", value_enum, default_value_t)]
    pub(crate) telemetry_urls: TelemetryUrls,
    /// For how many days recordings are kept after their session's end
    #[arg(long, value_name = "N", env = "CASEMENT_REPLAY_DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) replay_days: u32,
    /// How much recordings of ended sessions may take in all, in MiB; those that find no room are told as failed
    #[arg(long, value_name = "MIB", env = "CASEMENT_REPLAY_STORAGE", default_value_t = 10_240, value_parser = clap::value_parser!(u64).range(0..=67_108_864))]
    pub(crate) replay_storage: u64,
    #[command(flatten)]
    pub(crate) storage: StorageSettings,
    /// An OpenTelemetry collector that gets sessions' telemetry over OTLP/HTTP, its address before /v1/logs [default: none]
    #[arg(long, value_name = "URL", env = "CASEMENT_OTLP_ENDPOINT", value_parser = plain_url)]
    pub(crate) otlp_endpoint: Option<Url>,
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
    /// The first start makes no pool
    #[arg(long, env = "CASEMENT_NO_DEFAULT_POOL", value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) no_default_pool: bool,
    /// How many warm browsers of each common shape this node keeps for creates on demand
    #[arg(long, value_name = "N", env = "CASEMENT_SPARES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) spares: u32,
    /// Where the Chrome Web Store gives its extensions out; a mirror, for example
    #[arg(long, value_name = "URL", env = "CASEMENT_WEB_STORE_URL", default_value = crate::web_store::STORE)]
    pub(crate) web_store_url: Url,
    /// The 1Password Connect server of credential providers that name none
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
    /// A private address or name that credential providers may be at, beside what pages may reach; may be given several times
    #[arg(
        long,
        value_name = "CIDR|HOST",
        env = "CASEMENT_CREDENTIAL_PROVIDER_ALLOW",
        value_delimiter = ',',
        action = clap::ArgAction::Append
    )]
    pub(crate) credential_provider_allow: Vec<Allow>,
    /// How much memory one session may use, in MiB
    #[arg(long, value_name = "MIB", env = "CASEMENT_SESSION_MEMORY", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(256..=1_048_576))]
    pub(crate) session_memory: u64,
    /// The folder of the script runner, with Node and Playwright [default: ../runner or ../lib/casement/runner beside the program]
    #[arg(long, value_name = "DIR", env = "CASEMENT_SCRIPT_RUNNER")]
    pub(crate) script_runner: Option<PathBuf>,
    /// How many MiB of files one session may have, in memory: half of them in its home directory, half in /tmp
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
    /// How much telemetry is kept of one session, in MiB; what comes beyond that is counted
    #[arg(long, value_name = "MIB", env = "CASEMENT_SESSION_STORAGE", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=67_108_864))]
    session_storage: u64,
    /// How much telemetry and logs of apps are kept of one project, in MiB
    #[arg(long, value_name = "MIB", env = "CASEMENT_PROJECT_STORAGE", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=67_108_864))]
    project_storage: u64,
    /// How much telemetry and logs of apps are kept of what this node has stored, in MiB
    #[arg(long, value_name = "MIB", env = "CASEMENT_NODE_STORAGE", default_value_t = 16_384, value_parser = clap::value_parser!(u64).range(1..=67_108_864))]
    node_storage: u64,
    /// How much of the disk stays free of telemetry, logs of apps and recordings, in MiB; at most a tenth of it
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

    /// In bytes.
    pub(crate) fn disk_reserve(self) -> u64 {
        self.disk_reserve << 20
    }
}

/// How much of the URLs telemetry contains.
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
    /// Where proxies of the type datacenter are rented, as http://user[-country-{country}]:password@gate.example:7000 [default: nowhere]
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

/// The limits of what runs and of what is stored.
#[derive(Clone, Debug, Args)]
pub(crate) struct LimitSettings {
    /// How many sessions the organization may have at once, those of pools by their sizes; 0 is no limit [default: as it is; 50 at first]
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_CONCURRENT_SESSIONS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) max_concurrent_sessions: Option<u32>,
    /// How large its pools may be together; 0 is no limit [default: as it is; 50 at first]
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_POOLED_SESSIONS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) max_pooled_sessions: Option<u32>,
    /// How many invocations it may have queued or running; 0 is no limit [default: as it is; 100 at first]
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_CONCURRENT_INVOCATIONS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) max_concurrent_invocations: Option<u32>,
    /// How many pools a project may have
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_POOLS", default_value_t = Pools::DEFAULT_MAX_POOLS)]
    pub(crate) max_pools: u32,
    /// How many profiles a project may have
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_PROFILES", default_value_t = Profiles::DEFAULT_MAX)]
    pub(crate) max_profiles: u32,
    /// How many proxies a project may have
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_PROXIES", default_value_t = Proxies::DEFAULT_MAX)]
    pub(crate) max_proxies: u32,
    /// How many credentials a project may have
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_CREDENTIALS", default_value_t = Credentials::DEFAULT_MAX)]
    pub(crate) max_credentials: u32,
    /// How many extensions a project may have
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_EXTENSIONS", default_value_t = Extensions::DEFAULT_MAX)]
    pub(crate) max_extensions: u32,
    /// How many auth connections a project may have
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_AUTH_CONNECTIONS", default_value_t = AuthConnections::DEFAULT_MAX)]
    pub(crate) max_auth_connections: u32,
}

impl LimitSettings {
    /// Returns the organization's limits; unset ones stay as in `current`.
    pub(crate) fn caps(&self, current: Caps) -> Caps {
        let said = |wish: Option<u32>, current| wish.map_or(current, |most| (most > 0).then_some(most));
        Caps {
            concurrent_sessions: said(self.max_concurrent_sessions, current.concurrent_sessions),
            pooled_sessions: said(self.max_pooled_sessions, current.pooled_sessions),
            concurrent_invocations: said(self.max_concurrent_invocations, current.concurrent_invocations),
        }
    }
}

/// How apps are deployed and run.
#[derive(Clone, Debug, Args)]
pub(crate) struct AppSettings {
    /// Where Git repositories may lie that deployments are fetched from; may be given several times
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
    /// A region that deployments may name, the first unless they do; may be given several times
    #[arg(
        long = "region",
        value_name = "PROVIDER.ZONE",
        env = "CASEMENT_REGION",
        value_delimiter = ',',
        default_value = casement_domain::deployment::Deployments::DEFAULT_REGION,
        action = clap::ArgAction::Append
    )]
    pub(crate) regions: Vec<String>,
    /// How many invocations this node runs at a time; more wait
    #[arg(long, value_name = "N", env = "CASEMENT_APP_PARALLEL", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) app_parallel: u32,
    /// Of how many deployments, those that were invoked last, this node keeps a loaded process
    #[arg(long, value_name = "N", env = "CASEMENT_APP_READY", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) app_ready: u32,
}

/// The environment of builds.
#[derive(Clone, Debug, Args)]
pub(crate) struct BuildSettings {
    /// A place that builds may fetch packages from, beside PyPI and npm's registry; may be given several times
    #[arg(
        long = "build-registry",
        value_name = "HOST:PORT",
        env = "CASEMENT_BUILD_REGISTRY",
        value_delimiter = ',',
        value_parser = host_and_port,
        action = clap::ArgAction::Append
    )]
    pub(crate) build_registries: Vec<String>,
    /// The index that pip asks [default: PyPI]
    #[arg(long, value_name = "URL", env = "CASEMENT_PIP_INDEX", value_parser = registry_url)]
    pub(crate) pip_index: Option<Url>,
    /// The registry that npm asks [default: npm's own]
    #[arg(long, value_name = "URL", env = "CASEMENT_NPM_REGISTRY", value_parser = registry_url)]
    pub(crate) npm_registry: Option<Url>,
}

#[derive(Debug, Args)]
pub(crate) struct StopSettings {
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// End the sessions and the invocations that run, too
    #[arg(long)]
    pub(crate) end_sessions: bool,
}

/// The database settings of commands beside the server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Store {
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// A PostgreSQL server of yours [default: the private one in the data directory]
    #[arg(long, value_name = "URL", env = "CASEMENT_DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print it, this once
    Create {
        #[command(flatten)]
        store: Store,
        /// What it is for
        #[arg(long, value_name = "LABEL")]
        name: String,
        /// Opens this project alone, by id or name
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
        /// Expires after so many days, 1 to 3650
        #[arg(long, value_name = "N")]
        days: Option<i64>,
    },
    /// Print the keys, masked
    List {
        #[command(flatten)]
        store: Store,
    },
    /// Revoke a key: it is refused from now on
    Revoke {
        #[command(flatten)]
        store: Store,
        /// The key's id, the first part behind csk_
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Seal everything anew under a new key; the server may go on meanwhile
    Rotate {
        #[command(flatten)]
        store: Store,
        /// As of `casement serve`; then no key is made, and everything is sealed under the first
        #[arg(long, value_name = "KEY", env = "CASEMENT_MASTER_KEY", hide_env_values = true)]
        master_key: Option<SecretString>,
    },
}
