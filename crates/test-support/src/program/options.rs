//! The options of a server's start.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use super::Pages;
use super::cluster::Host;

/// The options of a server's start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The destinations that the browsers may reach besides the public internet; see `Pages::allow`.
    pub egress_allow: Vec<String>,
    /// True for a first start that creates everything, as for a user: the cluster, and the pool `default` of two headless
    /// browsers. This costs seconds of two cores. Otherwise the server has a copy of an empty cluster, and no pool.
    pub first_start: bool,
    /// The number of spares of each common shape.
    pub spares: u32,
    /// Further flags of `casement serve`.
    pub flags: Vec<String>,
    /// The file that replaces `/etc/resolv.conf` for the server.
    pub resolv_conf: Option<PathBuf>,
    /// The address to listen at; 127.0.0.1 by default.
    pub listen: Option<IpAddr>,
    /// True for a log that cannot be written.
    pub log_is_full: bool,
    /// Further environment variables. The variables `CASEMENT_…` of the test itself are not inherited.
    pub variables: Vec<(String, String)>,
    /// A data directory to move to the server's place, such as a restored one.
    pub data_dir: Option<PathBuf>,
    /// The database and the key of another server, to use instead of own ones; see [`Server::another`].
    pub beside: Option<StoreConnection>,
    /// The host of a node of a cluster; this machine by default.
    pub place: Option<Place>,
    /// True for a server that tests share: what a test has created on it ends with the test.
    pub is_shared: bool,
    /// Another program than the built one, such as that of an older version.
    pub program: Option<PathBuf>,
}

/// The host of a node, and its directory.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) host: Host,
    /// The port at which the node listens, and the port of this machine that leads there, or 0.
    pub(super) ports: (u16, u16),
    /// The directory of the cluster. Its guardian ends the server if the test is killed.
    pub(super) root: PathBuf,
}

/// The database, the key and the stored files that servers share.
#[derive(Clone, Debug)]
pub struct StoreConnection {
    pub(super) database: String,
    /// The API key; `None` for a database without an organization.
    pub(super) key: Option<String>,
    /// The directory of the stored files; `None` if they are in an object store.
    pub(super) blobs: Option<PathBuf>,
    /// The file of master keys; `None` if a variable gives the key.
    pub(super) master_key: Option<Vec<u8>>,
}

impl Options {
    /// Returns the options of a server whose browsers may open these pages.
    pub fn reaching(pages: &Pages) -> Self {
        Self { egress_allow: vec![pages.allow()], ..Self::default() }
    }

    pub(super) fn has_private_cluster(&self) -> bool {
        let names_another = |flag: &String| flag.starts_with("--database-url");
        self.beside.is_none() && !self.flags.iter().any(names_another)
    }
}

/// Returns a new key.
pub(super) fn master_key() -> anyhow::Result<String> {
    let output = Command::new("sh").args(["-c", "head -c 32 /dev/urandom | base64"]).output()?;
    ensure!(output.status.success(), "no random key");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Writes the file of master keys, which only its owner may read.
pub(super) fn write_master_key(data_dir: &Path, content: &[u8]) -> anyhow::Result<()> {
    let mut file = fs::OpenOptions::new();
    let mut file = file.write(true).create_new(true).mode(0o600).open(data_dir.join("master-key"))?;
    Ok(file.write_all(content)?)
}
