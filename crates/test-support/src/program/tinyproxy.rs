//! The HTTP proxy of the Debian package `tinyproxy`.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use super::until;

/// A running tinyproxy that requires a name and a password. It ends with the test, also if the test is killed.
pub struct Tinyproxy {
    /// The address on which the proxy listens.
    pub address: SocketAddr,
    child: Child,
    dir: TempDir,
}

impl Tinyproxy {
    /// Starts a proxy. The password may contain only letters and digits.
    pub fn start(name: &str, password: &str) -> anyhow::Result<Self> {
        static PORT: AtomicU16 = AtomicU16::new(21_000);
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        // Tinyproxy cannot choose a free port and report it, but no other process uses this address.
        let address = SocketAddr::from(([127, 64 + high, middle, low], PORT.fetch_add(1, Ordering::Relaxed)));
        let dir = tempfile::tempdir()?;
        let config = format!(
            "Listen {}\nPort {}\nTimeout 60\nMaxClients 20\nLogLevel Info\nBasicAuth {name} {password}\n",
            address.ip(),
            address.port()
        );
        fs::write(dir.path().join("config"), config)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "tinyproxy", "-d", "-c"]).arg(dir.path().join("config"));
        command.stdin(Stdio::null()).stdout(File::create(dir.path().join("log"))?);
        let mut started = Self { address, child: command.spawn().context("cannot start setpriv")?, dir };
        until("tinyproxy listens", Duration::from_secs(120), || match started.child.try_wait() {
            Ok(None) => TcpStream::connect(address).is_ok().then_some(Ok(())),
            ended => Some(Err(ended)),
        })?
        .or_else(|ended| bail!("tinyproxy ended at once, {ended:?}; is it installed? {}", started.log()))?;
        Ok(started)
    }

    /// Returns the log, with all requests.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Tinyproxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
