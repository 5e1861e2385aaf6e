//! Sandboxes for builds and calls.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casement_domain::clock::IdSource;
use casement_sandbox::{File, Host, HostConfig, MemoryLimit, Network, Sandbox, Spec, StartError};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use url::Url;

use crate::config::{AppRunnerConfig, AppRunnerSetupError, trusted};
use crate::egress::{self, AppEgressPort, EgressPolicy};
use crate::link;
use crate::protocol::{Base, CONFIG_PATH, Config, LOADER_NODE, LOADER_PYTHON, NODE, PLACE, Request};

/// What the program of a sandbox is called with to run [`casement_sandbox::prepare_network`].
const NETWORK: &str = "network";
/// The most open files of one process.
const MAX_OPEN_FILES: u32 = 4096;

/// Where sandboxes are made.
pub(crate) struct AppSandboxes {
    pub(crate) host: Host,
    pub(crate) config: AppRunnerConfig,
    egress: Arc<dyn AppEgressPort>,
    ids: Arc<dyn IdSource>,
    root: PathBuf,
    runtime: Handle,
}

/// What a sandbox is made for.
pub(crate) struct SandboxParams<'a> {
    /// What its name begins with.
    pub(crate) kind: char,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) processes: u32,
    pub(crate) reach: EgressPolicy,
    /// What was built, which it sees at its place and cannot change.
    pub(crate) artifact: Option<&'a Path>,
    /// Where the API is, if its programs shall reach it.
    pub(crate) base_url: Option<&'a str>,
}

/// There is no sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppSandboxError {
    #[error("a sandbox could not be started: {0}")]
    Start(#[from] StartError),
    #[error("a sandbox could not be spoken to: {0}")]
    Io(#[from] io::Error),
}

impl AppSandboxes {
    /// Needs a runtime, which serves them.
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
        Ok(Self { host, config, egress, ids, root, runtime: Handle::current() })
    }

    /// Makes one. It ends when what is answered is dropped.
    pub(crate) async fn open(self: &Arc<Self>, wanted: SandboxParams<'_>) -> Result<AppSandbox, AppSandboxError> {
        let id = format!("{}{}", wanted.kind, self.ids.next().to_string().to_lowercase());
        let reach = wanted.reach.clone();
        let spec = self.spec(&id, wanted)?;
        let sandbox = self.host.start(spec).await?;
        let mut room = AppSandbox { rooms: Arc::clone(self), id, sandbox: Some(sandbox), held: None };
        self.serve(room.sandbox()?, reach)?;
        room.held = Some(link::hold(room.sandbox()?).await?);
        Ok(room)
    }

    /// Serves the way out of a sandbox.
    pub(crate) fn serve(&self, sandbox: &Sandbox, reach: EgressPolicy) -> io::Result<()> {
        self.egress.serve(&sandbox.id, egress::listen(&sandbox.dir)?, reach);
        Ok(())
    }

    /// Ends a sandbox, whatever runs in it. What cannot be ended is left to the next start's sweep.
    pub(crate) async fn end(&self, id: &str) {
        self.egress.close(id);
        if let Err(error) = self.host.end(id).await {
            tracing::warn!(sandbox = id, %error, "a sandbox of a program could not be ended");
        }
    }

    fn spec(&self, id: &str, wanted: SandboxParams<'_>) -> io::Result<Spec> {
        let config = &self.config;
        // Watched from inside where the kernel does not hold it down.
        let unheld = self.host.memory_limit() == MemoryLimit::None;
        let memory_bytes = config.watch_memory_bytes.or(unheld.then_some(wanted.memory_bytes));
        let base = wanted.base_url.and_then(base);
        let network = base.as_ref().filter(|base| !is_plain(base));
        let network = network.map(|base| Network { args: vec![NETWORK.to_owned()], address: base.address });
        let inner = Config { proxy_port: proxy_port(base.as_ref()), base, memory_bytes };
        let loaders =
            [(LOADER_PYTHON, include_str!("loaders/loader.py")), (LOADER_NODE, include_str!("loaders/loader.mjs"))];
        let mut files = vec![File { inside: CONFIG_PATH.into(), content: serde_json::to_vec(&inner)? }];
        files.extend(loaders.map(|(path, text)| File { inside: path.into(), content: text.as_bytes().to_vec() }));
        files.extend(
            wanted.base_url.and_then(hosts).map(|text| File { inside: "/etc/hosts".into(), content: text.into() }),
        );
        let mut read_only_at: Vec<(PathBuf, PathBuf)> =
            config.node.iter().map(|node| (node.clone(), PathBuf::from(NODE))).collect();
        read_only_at.extend(wanted.artifact.map(|artifact| (artifact.to_owned(), PathBuf::from(PLACE))));
        let npm = config.npm.as_deref().and_then(Path::parent).and_then(Path::parent);
        Ok(Spec {
            id: id.to_owned(),
            program: config.program.clone(),
            args: config.args.clone(),
            env: vec![("LISTEN_FDS".to_owned(), "1".to_owned())],
            files,
            sockets: 1,
            listeners: Vec::new(),
            egress_dir: egress::directory(&self.root.join(id)),
            network,
            read_only: npm.filter(|npm| !npm.starts_with("/usr")).map(Path::to_owned).into_iter().collect(),
            read_only_at,
            memory_bytes: wanted.memory_bytes,
            tmpfs_bytes: wanted.disk_bytes / 2,
            max_processes: wanted.processes,
            max_open_files: MAX_OPEN_FILES,
        })
    }

    /// What every program finds in its environment: where to go, whom to trust.
    pub(crate) fn environment(&self, base_url: Option<&str>) -> Vec<(String, String)> {
        let base = base_url.and_then(base);
        let proxy = format!("http://127.0.0.1:{}", proxy_port(base.as_ref()));
        let mut direct = "localhost,127.0.0.1,::1".to_owned();
        if let Some(host) = base.and(base_url).and_then(host) {
            // An address of the sixth version is written in both ways.
            let bare = host.trim_matches(['[', ']']);
            direct = if bare == host { format!("{direct},{host}") } else { format!("{direct},{host},{bare}") };
        }
        let mut all: Vec<(&str, &str)> = vec![
            ("HOME", "/home/casement"),
            ("USER", "casement"),
            ("LANG", "C.UTF-8"),
            ("PATH", "/run/casement/node/bin:/usr/local/bin:/usr/bin:/bin"),
            ("NODE_USE_ENV_PROXY", "1"),
            ("PYTHONUNBUFFERED", "1"),
        ];
        all.extend(["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].map(|name| (name, proxy.as_str())));
        all.extend(["NO_PROXY", "no_proxy"].map(|name| (name, direct.as_str())));
        if let Some(trusted) = trusted().and_then(Path::to_str) {
            let names = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "npm_config_cafile"];
            all.extend(names.map(|name| (name, trusted)));
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// How an entrypoint is loaded, as a command.
    pub(crate) fn loader(&self, entrypoint: &casement_domain::deployment::Entrypoint) -> Vec<String> {
        use casement_domain::deployment::Runtime;
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

/// Where the API stands inside, so that its address leads there from what knows of no proxy: a name leads to the loopback, and who is
/// addressed by what stands for all addresses of a machine is found there, too.
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

/// Whether the inside can listen there by itself: on the loopback, and above the ports that need a right.
fn is_plain(base: &Base) -> bool {
    base.address.is_loopback() && base.port >= 1024
}

/// The port of the way out, beside the API's.
fn proxy_port(base: Option<&Base>) -> u16 {
    [3128, 3129].into_iter().find(|port| base.is_none_or(|base| base.port != *port)).unwrap_or_default()
}

/// `host:port` of an address.
pub(crate) fn authority(url: &str) -> Option<String> {
    let parsed = Url::parse(url).ok()?;
    Some(format!("{}:{}", parsed.host_str()?, parsed.port_or_known_default()?))
}

fn host(url: &str) -> Option<String> {
    Url::parse(url).ok()?.host_str().map(str::to_owned)
}

/// Names of the inside, the API's among them.
fn hosts(url: &str) -> Option<String> {
    base(url)?;
    let parsed = Url::parse(url).ok()?;
    match parsed.host()? {
        url::Host::Domain(name) => Some(format!("127.0.0.1 localhost sandbox {name}\n::1 localhost\n")),
        _ => None,
    }
}

/// One sandbox, which ends when this is dropped.
pub(crate) struct AppSandbox {
    rooms: Arc<AppSandboxes>,
    pub(crate) id: String,
    sandbox: Option<Sandbox>,
    /// As long as this is open the inside stays.
    held: Option<UnixStream>,
}

impl AppSandbox {
    /// The sandbox of an earlier life of the server.
    pub(crate) fn found(rooms: &Arc<AppSandboxes>, sandbox: Sandbox) -> Self {
        Self { rooms: Arc::clone(rooms), id: sandbox.id.clone(), sandbox: Some(sandbox), held: None }
    }

    /// What is in it.
    pub(crate) fn sandbox(&self) -> io::Result<&Sandbox> {
        self.sandbox.as_ref().ok_or_else(|| io::Error::other("the sandbox is not there"))
    }

    /// Ends it and waits until nothing of it is left.
    pub(crate) async fn end(mut self) {
        self.sandbox = None;
        self.rooms.end(&self.id).await;
    }

    /// Asks something of what is inside.
    pub(crate) async fn ask(&self, request: &Request) -> io::Result<UnixStream> {
        link::ask(self.sandbox()?, request).await
    }
}

impl Drop for AppSandbox {
    fn drop(&mut self) {
        if self.sandbox.is_some() {
            let (rooms, id) = (Arc::clone(&self.rooms), std::mem::take(&mut self.id));
            self.rooms.runtime.spawn(async move { rooms.end(&id).await });
        }
    }
}
