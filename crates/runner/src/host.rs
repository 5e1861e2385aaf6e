//! The sandboxes of builds and calls.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casement_domain::clock::IdSource;
use casement_domain::deployment::Runtime;
use casement_sandbox::{
    File, Host, HostConfig, MemoryLimit, Network, NetworkSetup, Sandbox, Spec, StartError, egress_directory,
    listen_for_egress,
};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::config::{AppRunnerConfig, AppRunnerSetupError, ca_bundle};
use crate::egress::{AppEgressPort, EgressPolicy};
use crate::link;
use crate::protocol::{Base, CONFIG_PATH, Config, DEPLOYMENT, LOADER_NODE, LOADER_PYTHON, NODE, Request};

/// The argument that makes the program run [`casement_sandbox::prepare_network`].
const NETWORK: &str = "network";
/// The maximum number of open files of a process.
const MAX_OPEN_FILES: u32 = 4096;

/// Creates and ends the sandboxes of builds and calls.
pub(crate) struct AppSandboxes {
    pub(crate) host: Host,
    pub(crate) config: AppRunnerConfig,
    egress: Arc<dyn AppEgressPort>,
    ids: Arc<dyn IdSource>,
    root: PathBuf,
    runtime: Handle,
    /// True if no sandbox is created any more. Locked for reading while one is being created.
    is_closed: RwLock<bool>,
    /// The ends of dropped sandboxes.
    ends: TaskTracker,
}

/// The parameters of a sandbox.
pub(crate) struct SandboxParams<'a> {
    /// The first letter of the sandbox's name.
    pub(crate) kind: char,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) processes: u32,
    pub(crate) policy: EgressPolicy,
    /// The directory of the artifact to mount read-only.
    pub(crate) artifact: Option<&'a Path>,
    /// The API's URL, if the sandbox may reach it.
    pub(crate) base_url: Option<&'a str>,
}

/// The sandbox could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppSandboxError {
    #[error("a sandbox could not be started: {0}")]
    Start(#[from] StartError),
    #[error("cannot talk to a sandbox: {0}")]
    Io(#[from] io::Error),
}

impl AppSandboxes {
    /// Must be called within the runtime that serves the egress.
    pub(crate) fn new(
        config: AppRunnerConfig,
        name: &str,
        egress: Arc<dyn AppEgressPort>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, AppRunnerSetupError> {
        let root = config.data_dir.join(name);
        let host = Host::new(HostConfig {
            root: root.clone(),
            uid_base: config.uid_base,
            uid_count: config.uid_count,
            bwrap: config.bwrap.clone(),
            setpriv: config.setpriv.clone(),
        })?;
        let root = root.canonicalize().unwrap_or(root);
        Ok(Self {
            host,
            config,
            egress,
            ids,
            root,
            runtime: Handle::current(),
            is_closed: RwLock::default(),
            ends: TaskTracker::new(),
        })
    }

    /// Creates a sandbox that ends when the returned value is dropped.
    pub(crate) async fn open(self: &Arc<Self>, params: SandboxParams<'_>) -> Result<AppSandbox, AppSandboxError> {
        let is_closed = self.is_closed.read().await;
        if *is_closed {
            return Err(io::Error::other("the server is going down").into());
        }
        let id = format!("{}{}", params.kind, self.ids.next().to_string().to_lowercase());
        let policy = params.policy.clone();
        let spec = self.spec(&id, params)?;
        let sandbox = self.host.start(spec).await?;
        let mut app_sandbox = AppSandbox { sandboxes: Arc::clone(self), id, sandbox: Some(sandbox), holding: None };
        self.serve(app_sandbox.sandbox()?, policy)?;
        app_sandbox.holding = Some(link::hold(app_sandbox.sandbox()?).await?);
        Ok(app_sandbox)
    }

    /// Serves the egress of a sandbox.
    pub(crate) fn serve(&self, sandbox: &Sandbox, policy: EgressPolicy) -> io::Result<()> {
        self.egress.serve(&sandbox.id, listen_for_egress(&sandbox.dir)?, policy);
        Ok(())
    }

    /// Ends a sandbox with all its processes. If that fails, the next server process ends it.
    pub(crate) async fn end(&self, id: &str) {
        self.egress.close(id);
        if let Err(error) = self.host.end(id).await {
            tracing::warn!(sandbox = id, %error, "cannot end a sandbox");
        }
    }

    /// Ends all sandboxes, and refuses new ones from then on. What cannot be ended is ended by the next server process.
    pub(crate) async fn close(&self) {
        // Waits for the sandboxes that are being created.
        *self.is_closed.write().await = true;
        self.ends.close();
        self.ends.wait().await;
        if let Err(error) = self.host.sweep(&HashSet::new()).await {
            tracing::warn!(%error, "cannot end all sandboxes of apps");
        }
    }

    fn spec(&self, id: &str, params: SandboxParams<'_>) -> io::Result<Spec> {
        let config = &self.config;
        // The app runner watches the memory if the kernel does not limit it.
        let watch_memory = self.host.memory_limit() == MemoryLimit::None;
        let memory_bytes = config.watch_memory_bytes.or(watch_memory.then_some(params.memory_bytes));
        let base = params.base_url.and_then(base);
        let network = base.as_ref().filter(|base| !is_bindable(base));
        let network =
            network.map(|base| Network { args: vec![NETWORK.to_owned()], setup: NetworkSetup::Listen(base.address) });
        let inner = Config { proxy_port: proxy_port(base.as_ref()), base, memory_bytes };
        let loaders =
            [(LOADER_PYTHON, include_str!("loaders/loader.py")), (LOADER_NODE, include_str!("loaders/loader.mjs"))];
        let mut files = vec![File { inside: CONFIG_PATH.into(), content: serde_json::to_vec(&inner)? }];
        files.extend(loaders.map(|(path, text)| File { inside: path.into(), content: text.as_bytes().to_vec() }));
        files.extend(
            params.base_url.and_then(hosts).map(|text| File { inside: "/etc/hosts".into(), content: text.into() }),
        );
        let mut read_only_at: Vec<(PathBuf, PathBuf)> =
            config.node.iter().map(|node| (node.clone(), PathBuf::from(NODE))).collect();
        read_only_at.extend(params.artifact.map(|artifact| (artifact.to_owned(), PathBuf::from(DEPLOYMENT))));
        let npm = config.npm.as_deref().and_then(Path::parent).and_then(Path::parent);
        Ok(Spec {
            id: id.to_owned(),
            program: config.program.clone(),
            args: config.args.clone(),
            env: vec![("LISTEN_FDS".to_owned(), "1".to_owned())],
            files,
            sockets: 1,
            listeners: Vec::new(),
            egress_dir: egress_directory(&self.root.join(id)),
            network,
            read_only: npm.filter(|npm| !npm.starts_with("/usr")).map(Path::to_owned).into_iter().collect(),
            read_only_at,
            memory_bytes: params.memory_bytes,
            tmpfs_bytes: params.disk_bytes / 2,
            max_processes: params.processes,
            max_open_files: MAX_OPEN_FILES,
        })
    }

    /// Returns the basic environment of every program, with the egress proxy and the trusted certificates.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        self.environment_of(None, "localhost,127.0.0.1,::1")
    }

    /// Returns the environment of an app that reaches the API at `base_url` without the proxy.
    pub(crate) fn app_environment(&self, runtime: Runtime, base_url: &str) -> Vec<(String, String)> {
        let base = base(base_url);
        let host = base.as_ref().and_then(|_| host(base_url)).unwrap_or_else(|| "localhost".to_owned());
        // Node knows IPv6 addresses with brackets only, and httpx of Python refuses to start if there is one with brackets.
        let direct = match runtime {
            Runtime::Node => format!("localhost,127.0.0.1,[::1],{host}"),
            Runtime::Python => format!("localhost,127.0.0.1,::1,{}", host.trim_matches(['[', ']'])),
        };
        self.environment_of(base.as_ref(), &direct)
    }

    fn environment_of(&self, base: Option<&Base>, direct: &str) -> Vec<(String, String)> {
        let proxy = format!("http://127.0.0.1:{}", proxy_port(base));
        let mut all: Vec<(&str, &str)> = vec![
            ("HOME", "/home/casement"),
            ("USER", "casement"),
            ("LANG", "C.UTF-8"),
            ("PATH", "/run/casement/node/bin:/usr/local/bin:/usr/bin:/bin"),
            ("NODE_USE_ENV_PROXY", "1"),
            ("PYTHONUNBUFFERED", "1"),
        ];
        all.extend(["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].map(|name| (name, proxy.as_str())));
        all.extend(["NO_PROXY", "no_proxy"].map(|name| (name, direct)));
        if let Some(ca_bundle) = ca_bundle().and_then(Path::to_str) {
            let names = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "npm_config_cafile"];
            all.extend(names.map(|name| (name, ca_bundle)));
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the command that loads an entrypoint.
    pub(crate) fn loader(&self, entrypoint: &casement_domain::deployment::Entrypoint) -> Vec<String> {
        let path = entrypoint.path().as_str().to_owned();
        match entrypoint.runtime() {
            Runtime::Python => vec![format!("{}/bin/python", crate::protocol::VENV), LOADER_PYTHON.to_owned(), path],
            Runtime::Node => {
                let flags = ["--experimental-transform-types", "--disable-warning=ExperimentalWarning", LOADER_NODE];
                [format!("{NODE}/bin/node")].into_iter().chain(flags.map(str::to_owned)).chain([path]).collect()
            }
        }
    }
}

/// Returns the API's address in the sandbox, for programs that ignore proxies. A host name resolves to loopback there,
/// and an unspecified address is replaced by loopback.
fn base(url: &str) -> Option<Base> {
    let parsed = Url::parse(url).ok()?;
    let address = match parsed.host()? {
        url::Host::Domain(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        url::Host::Ipv4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        url::Host::Ipv6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        url::Host::Ipv4(address) => IpAddr::V4(address),
        url::Host::Ipv6(address) => IpAddr::V6(address),
    };
    Some(Base { address, port: parsed.port_or_known_default()?, authority: authority(url)? })
}

/// Returns true if the app runner can listen on the address: a loopback address with an unprivileged port.
fn is_bindable(base: &Base) -> bool {
    base.address.is_loopback() && base.port >= 1024
}

/// Returns a port for the proxy that differs from the API's port.
fn proxy_port(base: Option<&Base>) -> u16 {
    [3128, 3129].into_iter().find(|port| base.is_none_or(|base| base.port != *port)).unwrap_or_default()
}

/// Returns `host:port` of a URL.
pub(crate) fn authority(url: &str) -> Option<String> {
    let parsed = Url::parse(url).ok()?;
    Some(format!("{}:{}", parsed.host_str()?, parsed.port_or_known_default()?))
}

fn host(url: &str) -> Option<String> {
    Url::parse(url).ok()?.host_str().map(str::to_owned)
}

/// Returns the hosts file of the sandbox with the API's host name; `None` if the URL has an IP address.
fn hosts(url: &str) -> Option<String> {
    base(url)?;
    let parsed = Url::parse(url).ok()?;
    match parsed.host()? {
        url::Host::Domain(name) => Some(format!("127.0.0.1 localhost sandbox {name}\n::1 localhost\n")),
        _ => None,
    }
}

/// A sandbox that ends when dropped.
pub(crate) struct AppSandbox {
    sandboxes: Arc<AppSandboxes>,
    pub(crate) id: String,
    sandbox: Option<Sandbox>,
    /// The connection that holds the sandbox; when it closes, a sandbox without a call ends.
    holding: Option<UnixStream>,
}

impl AppSandbox {
    /// Wraps the sandbox of a previous server process.
    pub(crate) fn adopted(sandboxes: &Arc<AppSandboxes>, sandbox: Sandbox) -> Self {
        Self { sandboxes: Arc::clone(sandboxes), id: sandbox.id.clone(), sandbox: Some(sandbox), holding: None }
    }

    /// Returns the sandbox.
    pub(crate) fn sandbox(&self) -> io::Result<&Sandbox> {
        self.sandbox.as_ref().ok_or_else(|| io::Error::other("the sandbox is not there"))
    }

    /// Ends the sandbox and waits for its end.
    pub(crate) async fn end(mut self) {
        self.sandbox = None;
        self.sandboxes.end(&self.id).await;
    }

    /// Sends a request to the app runner.
    pub(crate) async fn ask(&self, request: &Request) -> io::Result<UnixStream> {
        link::ask(self.sandbox()?, request).await
    }
}

impl Drop for AppSandbox {
    fn drop(&mut self) {
        if self.sandbox.is_some() {
            let (sandboxes, id) = (Arc::clone(&self.sandboxes), std::mem::take(&mut self.id));
            let end = async move { sandboxes.end(&id).await };
            self.sandboxes.ends.spawn_on(end, &self.sandboxes.runtime);
        }
    }
}
