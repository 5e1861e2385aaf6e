//! The infrastructure of a server: the engine, the stores and the egress.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use casement_agent_protocol::telemetry::Addresses;
use casement_blobs::Blobs;
use casement_chromium::{Engine, EngineConfig, ProfileStates, check_script_runner};
use casement_domain::blob::{BlobStore, StoreMark};
use casement_domain::engine::{ConfiguredEngines, EngineDescription};
use casement_domain::node::{NoPeers, Node, NotedPeers, OwnState, Peers, Placement, UnreachableNodes};
use casement_domain::profile::ProfileVersions;
use casement_domain::proxy::{ProxyGateways, ProxyRouting};
use casement_domain::replay::ReplayArchive;
use casement_domain::session::Sessions;
use casement_domain::shared_secret::SharedSecret;
use casement_domain::storage::StorageBounds;
use casement_domain::{Clock as _, NodeId};
use casement_egress::{Egress, Limits, Rules, SystemResolver};
use casement_http::{Cluster, NodeCalls};
use casement_postgres::{
    AUTH_CHANNEL, CHANGES_CHANNEL, NODES_CHANNEL, NotificationHub, PgBlobStore, PgNodes, apps_channel, node_channel,
};
use tokio::sync::mpsc;
use tracing::{info, warn};
use url::{Host, Url};

use super::repositories::Repositories;
use crate::apps::AppRuntime;
use crate::cluster_node::ClusterListener;
use crate::data_dir::DataDir;
use crate::disk::DiskWatch;
use crate::egress::SandboxEgress;
use crate::engines::{BrowserEngines, Grids, RemoteSockets};
use crate::jobs::DueWorkBoard;
use crate::settings::{GridServer, GridSettings, NodeSettings, ServeSettings, TelemetryUrls, machine_memory_mib};
use crate::store::Store;
use crate::system::System;
use crate::{app_runtime, blob_store, extensions, profiles, proxies, replays, shared_secret};
use casement_sealing::MasterKeys;

pub(super) struct Infrastructure {
    pub(super) node: NodeId,
    /// This node among others; `None`: it is alone.
    pub(super) cluster: Option<Cluster>,
    /// The other nodes of the database.
    pub(super) peers: Arc<dyn Peers>,
    pub(super) unreachable: UnreachableNodes,
    pub(super) data_dir: PathBuf,
    /// What this process knows of its own node.
    pub(super) own: OwnState,
    /// What the node announces.
    pub(super) description: Node,
    pub(super) public_url: Url,
    /// Whether the server listens on all addresses of the machine.
    pub(super) listens_everywhere: bool,
    pub(super) rows: Repositories,
    pub(super) disk: DiskWatch,
    pub(super) keys: MasterKeys,
    pub(super) shared_secret: SharedSecret,
    pub(super) sandbox_egress: Arc<SandboxEgress>,
    pub(super) upstreams: Arc<ProxyGateways>,
    pub(super) routing: ProxyRouting,
    /// The engine of the sandboxes.
    pub(super) engine: Engine,
    /// All engines.
    pub(super) engines: BrowserEngines,
    /// What each engine can do.
    pub(super) configured: ConfiguredEngines,
    pub(super) blobs: Arc<dyn BlobStore>,
    pub(super) blob_store: Blobs,
    /// The mark of the blob store; `None` if the store does not respond.
    pub(super) blob_mark: Option<StoreMark>,
    pub(super) profiles: ProfileVersions,
    pub(super) replays: ReplayArchive,
    pub(super) machines: AppRuntime,
    /// The notifications of the database for this node.
    pub(super) notifications: NotificationHub,
    /// What the background jobs may have to do.
    pub(super) due_work: DueWorkBoard,
}

impl Infrastructure {
    /// Creates everything. Also returns the receiver of failed proxies.
    pub(super) async fn connect(
        settings: &ServeSettings,
        data_dir: &DataDir,
        store: &Store,
        (local, listener): (SocketAddr, Option<&ClusterListener>),
    ) -> anyhow::Result<(Self, mpsc::Receiver<proxies::FailedRequest>)> {
        let public_url = match &settings.public_url {
            Some(url) => url.clone(),
            None => default_url(local, settings.tls_cert.is_some())?,
        };
        warn_of_plain_text(local, settings);
        let node = data_dir.node()?;
        let disk = DiskWatch::new(data_dir.path(), settings.storage.disk_reserve());
        let bounds = StorageBounds { node, budgets: settings.storage.budgets(), disk: Arc::new(disk.clone()) };
        let rows = Repositories::new(store, &bounds, settings.node.session_limit());
        // A server that is refused is never announced, so that no other node counts on it.
        let (keys, shared_secret) =
            shared_secret::open(&store.database, data_dir, settings.master_key.as_ref()).await?;
        let blob_rows = PgBlobStore::new(store.database.clone());
        let (blob_store, blob_mark) = blob_store::open_for_server(&settings.blobs, data_dir.path(), &blob_rows).await?;
        let description = describe_node(node, local, listener, &settings.node)?;
        let epoch = rows.nodes.announce(&description).await?;
        let own = OwnState::new(node, epoch, Arc::new(System));
        blob_store::ensure_not_moved(&blob_rows, blob_mark.as_ref()).await?;
        let cluster = listener.map(|listener| Cluster::new(node, epoch, listener.identity.clone(), rows.nodes.clone()));
        let unreachable = UnreachableNodes::new(Arc::new(System));
        let peers: Arc<dyn Peers> = match &cluster {
            Some(cluster) => {
                store.database.avoid(unreachable.clone());
                Arc::new(NotedPeers::new(Arc::new(NodeCalls::new(cluster.clone())), unreachable.clone()))
            }
            None => Arc::new(NoPeers),
        };

        let (sandbox_egress, failed_requests) = sandbox_egress(settings);
        let upstreams = Arc::new(settings.upstreams.read()?);
        let sealer = Arc::new(keys.clone());
        let routing = ProxyRouting::new(rows.proxies.clone(), sealer, sandbox_egress.clone(), upstreams.clone())
            .with_lent_hosts(settings.egress_lend.iter().cloned().collect());
        let servers = settings.grids.servers()?;
        let configured = configured_engines(&settings.grids, &servers)?;
        let grids = Grids::new(servers, node)?;
        let engine = engine(settings, data_dir, sandbox_egress.clone()).await?;
        let engine = engine.with_remote(Arc::new(RemoteSockets::new(grids.clone())));
        let blobs = blob_store.port();
        let engine = engine.with_extensions(extensions::source(rows.extensions.clone(), blobs.clone()));
        let profiles = profiles::versions(rows.profiles.clone(), blobs.clone(), &keys);
        let engine = engine.with_profiles(Arc::new(profiles.clone()));
        let states = ProfileStates::new(engine.clone(), sandbox_egress.clone(), Arc::new(System));
        let engines = BrowserEngines::new(engine.clone(), grids, states);
        let replays = replays::archive(rows.replays.clone(), blobs.clone(), settings, disk.clone());
        let machines =
            app_runtime::open(&settings.builds, data_dir, engine.config(), blobs.clone(), sandbox_egress.clone())
                .await?;
        let machines =
            AppRuntime { archives: machines.packages, builder: machines.app_runtime, runner: machines.runner_pool };
        let channels = [CHANGES_CHANNEL, NODES_CHANNEL, AUTH_CHANNEL].map(str::to_owned).into_iter();
        let channels = channels.chain([node_channel(node), apps_channel()]).collect();
        let notifications = NotificationHub::listen(&store.config, channels);
        let infrastructure = Self {
            node,
            unreachable,
            cluster,
            peers,
            data_dir: data_dir.path().to_owned(),
            own,
            description,
            public_url,
            listens_everywhere: local.ip().is_unspecified(),
            rows,
            disk,
            keys,
            shared_secret,
            sandbox_egress,
            upstreams,
            routing,
            engines,
            configured,
            engine,
            blobs,
            blob_store,
            blob_mark,
            profiles,
            replays,
            machines,
            notifications,
            due_work: DueWorkBoard::default(),
        };
        Ok((infrastructure, failed_requests))
    }

    /// Returns what chooses the nodes of new sessions.
    pub(super) fn placement(&self, store: &Store) -> Placement {
        Placement::new(self.node, Arc::new(PgNodes::new(store.database.clone())), Arc::new(System))
    }

    /// Adopts the browsers of the previous run of this node, and ends those without a session.
    pub(super) async fn adopt_browsers(&self, sessions: &Sessions) -> anyhow::Result<()> {
        proxies::restore(&self.routing, &*self.rows.browsers, self.node).await?;
        let alive = self.engine.find_running().await?;
        self.engines.continue_remote_sessions();
        self.rows.wait_queue.clear(self.node, System.now()).await?;
        let adopted = sessions.adopt(&alive).await?;
        self.engines.end_remote_sessions_but(&adopted);
        let ended = self.engine.sweep(&adopted).await.unwrap_or_else(|error| {
            // A browser that cannot be ended must not prevent the start.
            warn!(%error, "cannot end some browsers of the previous run");
            Vec::new()
        });
        if !adopted.is_empty() || !ended.is_empty() {
            info!(browsers = adopted.len(), ended = ended.len(), "adopted the browsers of the previous run");
        }
        Ok(())
    }
}

/// Returns what each engine can do; the first one is that of requests that name none.
fn configured_engines(settings: &GridSettings, servers: &[GridServer]) -> anyhow::Result<ConfiguredEngines> {
    let local = (!settings.no_local_engine).then(EngineDescription::local);
    let servers = servers.iter().map(|server| EngineDescription::webdriver(server.name.clone(), server.max_sessions));
    Ok(ConfiguredEngines::new(local.into_iter().chain(servers).collect())?)
}

fn describe_node(
    id: NodeId,
    local: SocketAddr,
    listener: Option<&ClusterListener>,
    settings: &NodeSettings,
) -> anyhow::Result<Node> {
    Ok(Node {
        id,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        address: local.to_string(),
        cluster: listener.map(|listener| listener.endpoint.clone()),
        max_sessions: settings.max_sessions(),
        limits_sessions: settings.session_limit().is_some(),
        memory_mib: machine_memory_mib().into(),
        labels: settings.labels()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: System.now(),
    })
}

/// Returns the egress, and the receiver of failed requests.
fn sandbox_egress(settings: &ServeSettings) -> (Arc<SandboxEgress>, mpsc::Receiver<proxies::FailedRequest>) {
    let rules = Rules::new(settings.egress_allow.clone());
    let egress = Egress::new(rules, Arc::new(SystemResolver::default()), Limits::default());
    let (egress, failed_requests, denied) = proxies::reporting(egress);
    (Arc::new(SandboxEgress::new(egress, denied)), failed_requests)
}

async fn engine(
    settings: &ServeSettings,
    data_dir: &DataDir,
    sandbox_egress: Arc<SandboxEgress>,
) -> anyhow::Result<Engine> {
    let mut config = EngineConfig::discover(data_dir.path().to_owned())?;
    let installation = settings.browsers.installation();
    config.memory_bytes = installation.memory.default.bytes();
    config.time_zone = Some(installation.time_zone.as_str().to_owned());
    config.disk_bytes = settings.session_disk << 20;
    config.telemetry_addresses = match settings.telemetry_urls {
        TelemetryUrls::Full => Addresses::Full,
        TelemetryUrls::WithoutQuery => Addresses::WithoutQuery,
    };
    if let Some(folder) = &settings.script_runner {
        let found = check_script_runner(folder).map_err(|error| anyhow::anyhow!("--script-runner: {error}"))?;
        config.script_runner = Some(found);
    }
    if config.script_runner.is_none() {
        warn!("no script runner: sessions cannot run scripts; see casement doctor");
    }
    Engine::new(config, sandbox_egress).await.context("browsers cannot be run here; see casement doctor")
}

/// Returns the URL of a server whose operator has stated none.
fn default_url(local: SocketAddr, is_encrypted: bool) -> anyhow::Result<Url> {
    let host = match local.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let scheme = if is_encrypted { "https" } else { "http" };
    Ok(Url::parse(&format!("{scheme}://{}", SocketAddr::new(host, local.port())))?)
}

/// Warns if other machines reach the server without TLS.
fn warn_of_plain_text(local: SocketAddr, settings: &ServeSettings) {
    let is_local = |url: &Url| match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    let is_protected = |url: &Url| url.scheme() == "https" || is_local(url);
    let is_protected = settings.tls_cert.is_some() || settings.public_url.as_ref().is_some_and(is_protected);
    if !local.ip().is_loopback() && !is_protected {
        warn!(
            "{local} is reached without TLS: keys, pages and passwords can be read on the way. Give --tls-cert and --tls-key, or \
             put a reverse proxy with TLS in front and give its --public-url"
        );
    }
}
