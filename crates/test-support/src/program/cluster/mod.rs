//! Several servers over one database, as on several machines.
//!
//! As root, each node has a network of its own; otherwise an address of its own, and links cannot be changed.

mod balancer;
mod chaos;
mod database;
mod door;
mod invariants;
mod load;
mod network;
mod queue;
mod remains;

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use ulid::Ulid;

use self::balancer::Balancer;
pub use self::chaos::{Caused, Fault, Numbers};
pub use self::database::Database;
pub(super) use self::door::Door;
pub use self::load::{AnsweredChange, Load, Report};
pub(super) use self::network::Host;
use self::network::Network;
pub use self::queue::{QUEUE_LOG, QueueOrder};
use self::remains::Remains;
use super::http::{Answer, Request};
use super::options::master_key;
use super::watchdog::Watchdog;
use super::{ObjectStore, Options, Pages, Place, Server, Session, StoreConnection, until};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The port of the nodes and of the load balancer, each on its own host.
const PORT: u16 = 8080;
/// The port of each node for the other nodes.
const CLUSTER_PORT: u16 = 8443;

/// The options of a cluster.
#[derive(Clone, Copy)]
pub struct ClusterOptions<'a> {
    /// The number of nodes.
    pub nodes: usize,
    /// Pages that the browsers of all nodes may open, at [`Cluster::page`].
    pub pages: Option<&'a Pages>,
    /// Further flags of each node.
    pub flags: &'a [&'a str],
    /// The options of each node: `first_start` and `spares` are used.
    pub spares: u32,
    /// True for a first start as for a user, with the pool `default`.
    pub first_start: bool,
    /// Another program than the built one, for the start of the nodes.
    pub program: Option<&'a Path>,
    /// The port of this machine that leads to the load balancer; the ones after it lead to the nodes. 0 for any.
    pub port: u16,
}

impl Default for ClusterOptions<'_> {
    fn default() -> Self {
        Self { nodes: 3, pages: None, flags: &[], spares: 0, first_start: false, program: None, port: 0 }
    }
}

/// Nodes, what they share, and a load balancer in front of them. Dropping it ends everything, and nothing may be left.
pub struct Cluster {
    nodes: Vec<Server>,
    /// The nodes whose addresses others have.
    former: Vec<Server>,
    /// The options of each node, without its host.
    options: Options,
    _balancer: Balancer,
    door: Door,
    pages: Option<Door>,
    store: ObjectStore,
    database: Database,
    network: Network,
    // Checked when all of the above has ended.
    _remains: Remains,
    _guardian: Watchdog,
    // Removed last, because everything else is in it.
    root: TempDir,
}

impl Cluster {
    /// Starts everything, and waits until all nodes are ready.
    pub fn start(options: ClusterOptions<'_>) -> anyhow::Result<Self> {
        // Sandboxes run as users of their own, which must be able to pass through. Sockets need short paths.
        let open = Permissions::from_mode(0o711);
        let root = tempfile::Builder::new().prefix("casement-e2e-").permissions(open).tempdir_in("/tmp")?;
        let guardian = Watchdog::guard(root.path())?;
        let network = Network::start(options.nodes, root.path())?;
        let database = Database::start_on(network.hub(), network.is_divided(), root.path())?;
        if options.program.is_some() {
            database.remove_schema()?;
        }
        let store = ObjectStore::start_on(network.hub(), root.path())?;
        let door = network.hub().door(PORT, options.port)?;
        let pages = options.pages.map(|pages| network.hub().door_to(pages.address())).transpose()?;
        let addresses: Vec<SocketAddr> =
            (0..options.nodes).map(|node| (network.node(node).ip(), PORT).into()).collect();
        let balancer = Balancer::start_on(network.hub(), PORT, &addresses, door.address(), root.path())?;
        let of_nodes = node_options(&options, (&database, &store), door.address(), pages.as_ref())?;
        let mut cluster = Self {
            nodes: Vec::new(),
            former: Vec::new(),
            options: of_nodes,
            _balancer: balancer,
            door,
            pages,
            store,
            database,
            _remains: Remains::new(root.path(), &network),
            network,
            _guardian: guardian,
            root,
        };
        for node in 0..options.nodes {
            let server =
                Server::start(cluster.options_of(node, options.port)).with_context(|| format!("the node {node}"))?;
            if let Some(beside) = &mut cluster.options.beside {
                beside.key = Some(server.key().to_owned());
            }
            cluster.nodes.push(server);
        }
        cluster.until_balanced(options.nodes)?;
        Ok(cluster)
    }

    /// Waits until the load balancer gives calls to this many nodes.
    pub fn until_balanced(&self, nodes: usize) -> anyhow::Result<()> {
        let is_ready = || Request::new("GET", "/readyz").send(self.address()).is_ok_and(|answer| answer.status == 200);
        until("the load balancer has found the nodes", TEST_TIMEOUT, || (0..nodes).all(|_| is_ready()).then_some(()))
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Returns a node.
    pub fn node(&mut self, node: usize) -> &mut Server {
        &mut self.nodes[node]
    }

    /// Returns the address of the load balancer.
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// Returns the URL of the load balancer, which is that of the service.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the key that the first start created.
    pub fn key(&self) -> &str {
        self.nodes[0].key()
    }

    /// Returns the URL of one of the pages, for browsers.
    ///
    /// # Panics
    /// If the cluster has no pages.
    pub fn page(&self, path: &str) -> String {
        let door = self.pages.as_ref().expect("`ClusterOptions::pages` names pages");
        format!("http://{}{path}", door.address())
    }

    /// Sends a request with the key through the load balancer.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let request = Request::new(method, path).bearer(self.key());
        body.map_or_else(|| request.clone(), |body| request.clone().json(body)).send(self.address())
    }

    /// Returns the database of all nodes.
    pub fn database(&mut self) -> &mut Database {
        &mut self.database
    }

    /// Returns the object store of all nodes.
    pub fn store(&mut self) -> &mut ObjectStore {
        &mut self.store
    }

    /// Runs a statement in the database. Rows are lines, columns are separated by `|`.
    pub fn sql(&self, statement: &str) -> anyhow::Result<String> {
        self.database.sql(statement)
    }

    /// Returns the id of a node as the database writes it.
    pub fn node_id(&self, node: usize) -> anyhow::Result<String> {
        uuid(fs::read_to_string(self.nodes[node].data_dir().join("node-id"))?.trim())
    }

    /// Returns the node that has the browser of a session, which may have ended.
    pub fn owner(&self, session: &Session) -> anyhow::Result<usize> {
        let found = self.sql(&format!("select node_id from sessions where id = '{}'", uuid(session.id())?))?;
        let node = (0..self.nodes.len()).find(|node| self.node_id(*node).is_ok_and(|id| id == found));
        node.with_context(|| format!("no node has the id {found:?}"))
    }

    /// Returns the nodes that do not have the browser of a session.
    pub fn strangers(&self, session: &Session) -> anyhow::Result<Vec<usize>> {
        let owner = self.owner(session)?;
        Ok((0..self.nodes.len()).filter(|node| *node != owner).collect())
    }

    /// Returns a URL of the service with a node instead of the load balancer.
    pub fn through(&self, node: usize, url: &str) -> String {
        url.replacen(&self.address().to_string(), &self.nodes[node].address().to_string(), 1)
    }

    /// Stops the server of a node with `SIGSTOP`. Its browsers go on.
    pub fn pause(&self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].signal_server(Signal::STOP)
    }

    /// Continues the server of a node.
    pub fn resume(&self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].signal_server(Signal::CONT)
    }

    /// Pulls the cable of a node. Nobody is informed: connections stay open on both sides.
    pub fn unplug(&self, node: usize) -> anyhow::Result<()> {
        self.network.set_link(node, false)
    }

    /// Plugs the cable of a node in again.
    pub fn plug(&self, node: usize) -> anyhow::Result<()> {
        self.network.set_link(node, true)
    }

    /// Delays every frame from and to a node, and loses this share of them.
    pub fn slow_down(&mut self, node: usize, delay: Duration, loss: f64) -> anyhow::Result<()> {
        self.network.slow_down(node, delay, loss)
    }

    /// Ends the delay and the loss.
    pub fn restore_speed(&mut self, node: usize) -> anyhow::Result<()> {
        self.network.restore_speed(node)
    }

    /// Starts a new node, with an empty directory, at the address of a node that was killed.
    pub fn take_over_address_of(&mut self, node: usize) -> anyhow::Result<()> {
        ensure!(self.nodes[node].ended()?.is_some() || !self.nodes[node].is_running(), "kill the node first");
        let server = Server::start(self.options_of(node, 0))?;
        self.former.push(std::mem::replace(&mut self.nodes[node], server));
        Ok(())
    }

    /// Returns the options of a node. `port` is that of the load balancer on this machine, or 0.
    fn options_of(&self, node: usize, port: u16) -> Options {
        let mut options = self.options.clone();
        let listen = format!("{}:{CLUSTER_PORT}", self.network.node(node).ip());
        options.variables.push(("CASEMENT_CLUSTER_LISTEN".to_owned(), listen));
        Options { place: Some(place(&self.network, node, port, &self.root)), ..options }
    }

    /// Undoes all faults.
    pub fn heal(&mut self) -> anyhow::Result<()> {
        for node in 0..self.nodes.len() {
            if self.network.is_divided() {
                self.network.restore_speed(node)?;
                self.plug(node)?;
            }
            if self.nodes[node].is_running() {
                self.resume(node)?;
            }
        }
        if !self.database.is_running() {
            self.database.start()?;
        }
        if !self.store.is_running() {
            self.store.restart()?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.heal() {
            eprintln!("the faults were not undone: {error:#}");
        }
    }
}

/// Returns the options of each node.
fn node_options(
    options: &ClusterOptions<'_>,
    (database, store): (&Database, &ObjectStore),
    service: SocketAddr,
    pages: Option<&Door>,
) -> anyhow::Result<Options> {
    let mut flags = vec!["--public-url".to_owned(), format!("http://{service}")];
    // Tests send requests to the nodes themselves.
    flags.extend(["--allowed-host", "127.0.0.1"].map(str::to_owned));
    flags.extend(options.flags.iter().map(|flag| (*flag).to_owned()));
    let (id, secret) = ObjectStore::KEY;
    // As variables, because an older version ignores those that it does not know.
    let variables = [
        ("CASEMENT_MASTER_KEY", master_key()?),
        ("CASEMENT_BLOB_URL", format!("s3://{}/cluster", ObjectStore::BUCKET)),
        ("CASEMENT_BLOB_ENDPOINT", store.url()),
        ("AWS_ACCESS_KEY_ID", id.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
    Ok(Options {
        first_start: options.first_start,
        spares: options.spares,
        flags,
        egress_allow: pages.map(|door| door.address().to_string()).into_iter().collect(),
        variables,
        program: options.program.map(Path::to_owned),
        beside: Some(StoreConnection { database: database.url(), key: None, blobs: None, master_key: None }),
        ..Options::default()
    })
}

fn place(network: &Network, node: usize, balancer_port: u16, root: &TempDir) -> Place {
    let local_port = u16::try_from(node + 1).ok().filter(|_| balancer_port != 0).map_or(0, |n| balancer_port + n);
    Place { host: network.node(node).clone(), ports: (PORT, local_port), root: root.path().to_owned() }
}

/// Converts an identifier to the form of the database.
fn uuid(id: &str) -> anyhow::Result<String> {
    let digits = format!("{:032x}", Ulid::from_string(id).map_err(|error| anyhow!("{id}: {error}"))?.0);
    let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
    Ok(format!("{a}-{b}-{c}-{d}-{e}"))
}
