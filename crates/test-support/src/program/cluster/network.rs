//! The hosts of a cluster: network namespaces that a bridge connects, or loopback addresses if the test is not root.
//!
//! The namespaces have no names. Each exists for as long as a process is in it, so that tests never meet, and nothing is
//! left when the guardian has ended the processes of a killed test. The machine's own network is not changed: the bridge
//! is in a namespace too, and [`Door`]s lead there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::door::Door;
use crate::program::until;

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The network of the namespaces. It exists only there, so all tests use the same.
const NETWORK: [u8; 3] = [10, 77, 0];
/// The bridge, in the namespace of the hub.
const BRIDGE: &str = "hub";
/// The interface of a node, in its namespace.
const INTERFACE: &str = "eth0";

/// Copies frames between two interfaces, with a delay and a loss. Not every kernel has `netem`.
///
/// Frames have headers of the kind of virtio, because the kernel leaves checksums and the division of large frames to the
/// receiver of a virtual link.
const SLOW_LINK: &str = r"
import heapq, random, select, socket, sys, time
first, second, delay, loss = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
def interface(name):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    opened.bind((name, 3))
    opened.setblocking(False)
    return opened
ends = [interface(first), interface(second)]
other = {ends[0]: ends[1], ends[1]: ends[0]}
late, number = [], 0
print('ready', flush=True)
while True:
    now = time.monotonic()
    while late and late[0][0] <= now:
        _, _, end, frame = heapq.heappop(late)
        try:
            end.send(frame)
        except OSError:
            pass  # The interface is down or its queue is full: the frame is lost.
    ready, _, _ = select.select(ends, [], [], max(0, late[0][0] - time.monotonic()) if late else None)
    for end in ready:
        try:
            frame = end.recv(1 << 17)
        except OSError:
            continue
        if random.random() >= loss:
            number += 1
            heapq.heappush(late, (time.monotonic() + delay, number, other[end], frame))
";

/// One host. Where it has a network of its own, its programs see only that.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    ip: Ipv4Addr,
    /// The network namespace.
    namespace: Option<PathBuf>,
}

impl Host {
    /// Returns this machine at one of its addresses.
    pub(crate) fn at(ip: Ipv4Addr) -> Self {
        Self { ip, namespace: None }
    }

    /// Returns the address of the host in its network.
    pub(crate) fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Returns a command that runs on this host.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(namespace) = &self.namespace else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", namespace.display())).arg("--").arg(program);
        command
    }

    /// Opens an address of this machine that leads to a port of the host: that of the host itself if it is this machine.
    /// `local_port` may be 0.
    pub(crate) fn door(&self, port: u16, local_port: u16) -> anyhow::Result<Door> {
        let to = SocketAddr::from((self.ip, port));
        if self.namespace.is_none() && local_port == 0 {
            return Ok(Door::of(to));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local_port))
            .with_context(|| format!("the port {local_port} is not free"))?;
        Door::open(listener, to, self.namespace.clone())
    }

    /// Opens an address of the host that leads to an address of this machine.
    pub(crate) fn door_to(&self, to: SocketAddr) -> anyhow::Result<Door> {
        if self.namespace.is_none() {
            return Ok(Door::of(to));
        }
        Door::open(self.listen()?, to, None)
    }

    fn listen(&self) -> anyhow::Result<TcpListener> {
        let (ip, namespace) = (self.ip, self.namespace.clone());
        // A thread of its own, because it stays in the namespace.
        let listening = thread::spawn(move || {
            namespace.as_deref().map_or(Ok(()), enter)?;
            anyhow::Ok(TcpListener::bind((ip, 0))?)
        });
        listening.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns a process in the host's network, if that is not the one of this machine.
    pub(crate) fn process(&self) -> Option<u32> {
        self.namespace.as_ref()?.iter().nth(2)?.to_str()?.parse().ok()
    }

    fn is_namespace(&self) -> anyhow::Result<&Path> {
        self.namespace.as_deref().context("this needs network namespaces, and so root")
    }
}

/// Moves this thread into a network namespace.
pub(super) fn enter(namespace: &Path) -> anyhow::Result<()> {
    let file = File::open(namespace).with_context(|| format!("no namespace {}", namespace.display()))?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// The networks of all hosts. Dropping it ends them.
pub(crate) struct Network {
    root: PathBuf,
    hub: Host,
    nodes: Vec<Host>,
    /// The processes that hold the namespaces.
    holders: Vec<Child>,
    /// The process of the slow link of each node, if it has one.
    slow: Vec<Option<Child>>,
}

impl Network {
    /// Creates the networks of a hub and of these nodes. Its processes have the directory as their working directory.
    pub(crate) fn start(nodes: usize, root: &Path) -> anyhow::Result<Self> {
        let mut network = Self {
            root: root.to_owned(),
            hub: Host::at(Ipv4Addr::LOCALHOST),
            nodes: Vec::new(),
            holders: Vec::new(),
            slow: Vec::new(),
        };
        if geteuid().is_root() {
            network.create(nodes)?;
        } else {
            // No other process of this machine uses these addresses.
            let [_, high, middle, _] = std::process::id().to_be_bytes();
            static NEXT: AtomicU16 = AtomicU16::new(1);
            let low = NEXT.fetch_add(16, Ordering::Relaxed).to_be_bytes()[1];
            let host = |n: u8| Host { ip: [127, 128 + high, middle, low.wrapping_add(n)].into(), namespace: None };
            let mut hosts = (0..).map(host);
            network.hub = hosts.next().unwrap_or_else(|| Host::at(Ipv4Addr::LOCALHOST));
            network.nodes = hosts.take(nodes).collect();
        }
        network.slow.resize_with(nodes, || None);
        Ok(network)
    }

    /// Returns the host of what all nodes use: the database, the store and the load balancer.
    pub(crate) fn hub(&self) -> &Host {
        &self.hub
    }

    /// Returns the host of a node.
    pub(crate) fn node(&self, node: usize) -> &Host {
        &self.nodes[node]
    }

    /// Returns true if each host has a network of its own.
    pub(crate) fn is_divided(&self) -> bool {
        self.hub.namespace.is_some()
    }

    /// Returns the network namespaces of all hosts, as the kernel names them.
    pub(super) fn namespaces(&self) -> Vec<PathBuf> {
        let namespaces = std::iter::once(&self.hub).chain(&self.nodes).filter_map(|host| host.namespace.as_ref());
        namespaces.filter_map(|namespace| fs::read_link(namespace).ok()).collect()
    }

    /// Pulls a node's cable, or plugs it in again. Connections stay open on both sides.
    pub(crate) fn set_link(&self, node: usize, is_up: bool) -> anyhow::Result<()> {
        self.nodes[node].is_namespace()?;
        ip(&self.hub, &["link", "set", &port(node), if is_up { "up" } else { "down" }])
    }

    /// Delays every frame from and to a node, and loses this share of them.
    pub(crate) fn slow_down(&mut self, node: usize, delay: Duration, loss: f64) -> anyhow::Result<()> {
        self.nodes[node].is_namespace()?;
        self.restore_speed(node)?;
        let (port, slow, far) = (port(node), format!("slow{node}"), format!("far{node}"));
        ip(&self.hub, &["link", "set", &port, "nomaster"])?;
        ip(&self.hub, &["link", "add", &slow, "type", "veth", "peer", "name", &far])?;
        ip(&self.hub, &["link", "set", &slow, "up"])?;
        ip(&self.hub, &["link", "set", &far, "master", BRIDGE, "up"])?;
        let log = self.root.join(format!("slow-link-{node}"));
        let mut command = self.hub.command("python3");
        command.args(["-c", SLOW_LINK, &port, &slow, &delay.as_secs_f64().to_string(), &loss.to_string()]);
        command.current_dir(&self.root).stdin(Stdio::null()).process_group(0);
        let output = File::create(&log)?;
        command.stdout(output.try_clone()?).stderr(output);
        self.slow[node] = Some(command.spawn().context("cannot start python3")?);
        let is_ready = || fs::read_to_string(&log).is_ok_and(|text| text.starts_with("ready")).then_some(());
        until("the slow link is ready", START_TIMEOUT, is_ready)
            .with_context(|| fs::read_to_string(&log).unwrap_or_default())
    }

    /// Ends the delay and the loss of a node's link.
    pub(crate) fn restore_speed(&mut self, node: usize) -> anyhow::Result<()> {
        let Some(mut slow) = self.slow[node].take() else { return Ok(()) };
        slow.kill()?;
        slow.wait()?;
        ip(&self.hub, &["link", "del", &format!("slow{node}")])?;
        ip(&self.hub, &["link", "set", &port(node), "master", BRIDGE])
    }

    fn create(&mut self, nodes: usize) -> anyhow::Result<()> {
        self.hub = self.host(1)?;
        ip(&self.hub, &["link", "add", BRIDGE, "type", "bridge"])?;
        ip(&self.hub, &["addr", "add", &format!("{}/24", self.hub.ip), "dev", BRIDGE])?;
        ip(&self.hub, &["link", "set", BRIDGE, "up"])?;
        for (node, last) in (0..nodes).zip(11..) {
            let host = self.host(last)?;
            let holder = self.holders.last().context("no holder")?.id().to_string();
            let ends = ["link", "add", &port(node), "type", "veth", "peer", "name", INTERFACE, "netns", &holder];
            ip(&self.hub, &ends)?;
            ip(&self.hub, &["link", "set", &port(node), "master", BRIDGE, "up"])?;
            ip(&host, &["addr", "add", &format!("{}/24", host.ip), "dev", INTERFACE])?;
            ip(&host, &["link", "set", INTERFACE, "up"])?;
            self.nodes.push(host);
        }
        Ok(())
    }

    /// Creates a host with a network of its own, in which only the loopback interface is up.
    fn host(&mut self, last: u8) -> anyhow::Result<Host> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sleep", "infinity"]).current_dir(&self.root).stdin(Stdio::null()).process_group(0);
        let holder = holder.spawn().context("cannot start unshare")?;
        let namespace = PathBuf::from(format!("/proc/{}/ns/net", holder.id()));
        self.holders.push(holder);
        let own = fs::read_link("/proc/self/ns/net")?;
        until("a network namespace", START_TIMEOUT, || {
            fs::read_link(&namespace).is_ok_and(|found| found != own).then_some(())
        })?;
        let [a, b, c] = NETWORK;
        let host = Host { ip: [a, b, c, last].into(), namespace: Some(namespace) };
        ip(&host, &["link", "set", "lo", "up"])?;
        Ok(host)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for process in self.slow.iter_mut().flatten().chain(&mut self.holders) {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

/// Returns the name of a node's port at the bridge.
fn port(node: usize) -> String {
    format!("node{node}")
}

/// Runs `ip` on a host.
fn ip(host: &Host, words: &[&str]) -> anyhow::Result<()> {
    // Ctrl-C ends the test, which must still be able to clean up.
    let output = host.command("ip").args(words).process_group(0).output().context("cannot start ip")?;
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("Cannot open network namespace") {
        bail!("the host has ended");
    }
    ensure!(output.status.success(), "ip {}: {message}", words.join(" "));
    Ok(())
}
