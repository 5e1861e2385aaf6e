//! HAProxy in front of the nodes: each call goes to the next node that is ready.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::network::Host;
use crate::program::http::Request;
use crate::program::{repository, until};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The configuration before the list of nodes. A node that is not ready gets no calls; a call that has reached a node is
/// not sent to another one.
const CONFIGURATION: &str = "\
global
    maxconn 8000
defaults
    mode http
    balance roundrobin
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host 127.0.0.1
    http-check expect status 200
    timeout connect 3s
    timeout client 1h
    timeout server 1h
    timeout tunnel 24h
    timeout http-request 30s
    timeout check 3s
    default-server check inter 1s fall 2 rise 1
";

/// A running HAProxy.
pub(super) struct Balancer(Child);

impl Balancer {
    /// Starts it on a host, at a port, in front of the addresses, which the test reaches at `door`.
    pub(super) fn start_on(
        host: &Host,
        port: u16,
        nodes: &[SocketAddr],
        door: SocketAddr,
        root: &Path,
    ) -> anyhow::Result<Self> {
        let mut configuration = CONFIGURATION.to_owned();
        write!(configuration, "listen casement\n    bind {}:{port}\n", host.ip())?;
        for (number, node) in nodes.iter().enumerate() {
            writeln!(configuration, "    server node{number} {node}")?;
        }
        let (file, log) = (root.join("haproxy.cfg"), root.join("haproxy.log"));
        fs::write(&file, configuration)?;
        let programs = folder();
        let mut command = host.command(programs.join("usr/sbin/haproxy"));
        let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        command.env("LD_LIBRARY_PATH", programs.join(libraries)).arg("-db").arg("-f").arg(&file);
        let output = File::create(&log)?;
        command.current_dir(root).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = command.spawn().context("cannot start HAProxy: `cargo xtask test` installs it")?;
        let mut started = Self(child);
        let is_ready = until("HAProxy listens", START_TIMEOUT, || match started.0.try_wait() {
            // Any response is one of HAProxy: no node runs yet.
            Ok(None) => Request::new("GET", "/").send(door).is_ok().then_some(true),
            _ => Some(false),
        })?;
        if !is_ready {
            bail!("HAProxy ended at once: {}", fs::read_to_string(&log).unwrap_or_default());
        }
        Ok(started)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the folder into which the program is unpacked.
fn folder() -> PathBuf {
    let default = || repository().join("target/reverse-proxies");
    std::env::var_os("CASEMENT_TEST_REVERSE_PROXIES").map_or_else(default, PathBuf::from)
}
