//! The specification of a sandbox.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use crate::error::StartError;
use crate::network::Network;

/// The maximum number of descriptors, files and arguments of one sandbox, far above any need.
const MAX_COUNT: usize = 256;

/// The specification of a sandbox. Nothing of it appears on a command line that other users of the host can read.
pub struct Spec {
    /// The name of the sandbox and of its directory: 1 to 40 characters of `0-9a-z`.
    pub id: String,
    /// The path of the program on the host. A private copy is mounted read-only at `/run/casement/program`, so that a
    /// replacement of the file on the host does not change a running sandbox.
    pub program: PathBuf,
    /// The arguments of the program, without its name.
    pub args: Vec<String>,
    /// The environment in addition to `HOME`, `PATH`, `LANG` and `USER`. The starter's environment is not passed.
    pub env: Vec<(String, String)>,
    /// Read-only files inside. They replace files that every sandbox has at the same path.
    pub files: Vec<File>,
    /// The number of listening unix stream sockets to create. They are the program's descriptors 3, 4, …
    /// [`crate::Sandbox::connect`] connects to them from the host.
    pub sockets: usize,
    /// Further open descriptors of the program, numbered after the sockets.
    pub listeners: Vec<OwnedFd>,
    /// A directory of the host, mounted read-only at `/run/casement/egress`, and created if it is missing. If the
    /// server runs as root, the directory is given to the sandbox's group with mode 0710: programs inside can connect
    /// to sockets in it (which need mode 0666 themselves), other users of the host cannot. Its parents must be
    /// traversable.
    pub egress_dir: PathBuf,
    /// The prepared network. `None`: the network has only loopback, and only ports from 1024 on.
    pub network: Option<Network>,
    /// Further paths of the host, mounted read-only at the same path.
    pub read_only: Vec<PathBuf>,
    /// Further paths of the host, mounted read-only at another path: the path on the host and the path inside.
    pub read_only_at: Vec<(PathBuf, PathBuf)>,
    /// The maximum memory of all processes together in bytes, including shared memory, if the host can limit it. Files
    /// in `/tmp` and the home directory are not included.
    pub memory_bytes: u64,
    /// The size in bytes of each of `/tmp` and the home directory, and of `/dev/shm` unless a quarter of the memory is
    /// less.
    pub tmpfs_bytes: u64,
    /// The maximum number of processes and threads.
    pub max_processes: u32,
    /// The maximum number of open files of one process.
    pub max_open_files: u32,
}

/// A read-only file inside.
pub struct File {
    /// The absolute path inside.
    pub inside: PathBuf,
    /// The content.
    pub content: Vec<u8>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be a secret.
        f.debug_struct("File").field("inside", &self.inside).field("bytes", &self.content.len()).finish()
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and environment may be secrets.
        f.debug_struct("Spec").field("id", &self.id).field("program", &self.program).finish_non_exhaustive()
    }
}

/// Returns true if `id` is a valid id: 1 to 40 characters of `0-9a-z`.
pub(crate) fn valid_id(id: &str) -> bool {
    (1..=40).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
}

impl Spec {
    /// Returns the maximum memory of the whole sandbox in bytes, including the files, which are in memory and which the
    /// kernel counts too. A full disk therefore takes no memory from the processes.
    pub(crate) fn all_memory_bytes(&self) -> u64 {
        self.memory_bytes.saturating_add(self.tmpfs_bytes.saturating_mul(2))
    }

    /// Returns the size of `/dev/shm` in bytes. It is limited by the memory, because its files are the processes'
    /// shared memory.
    pub(crate) fn shared_memory_bytes(&self) -> u64 {
        self.tmpfs_bytes.min(self.memory_bytes / 4)
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        let refuse = |field, reason: &str| Err(StartError::Invalid { field, reason: reason.to_owned() });
        if !valid_id(&self.id) {
            return refuse("id", "must be 1 to 40 characters of 0-9a-z");
        }
        if !absolute(&self.program) {
            return refuse("program", "must be an absolute path without ..");
        }
        if self.args.len() > MAX_COUNT || self.args.iter().any(|a| a.contains('\0')) {
            return refuse("args", "too many, or one holds a NUL");
        }
        let bad =
            |(name, value): &(String, String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        if self.env.len() > MAX_COUNT || self.env.iter().any(bad) {
            return refuse("env", "too many, an unusable name, or a NUL");
        }
        if self.network.iter().any(|network| network.args.iter().any(|a| a.contains('\0'))) {
            return refuse("network", "an argument holds a NUL");
        }
        if self.files.len() > MAX_COUNT || !self.files.iter().all(|f| absolute(&f.inside)) {
            return refuse("files", "too many, or one is not at an absolute path without ..");
        }
        if self.sockets + self.listeners.len() > MAX_COUNT {
            return refuse("listeners", "too many");
        }
        if !absolute(&self.egress_dir) {
            return refuse("egress_dir", "must be an absolute path without ..");
        }
        if self.read_only.len() > MAX_COUNT || !self.read_only.iter().all(|p| absolute(p)) {
            return refuse("read_only", "too many, or one is not an absolute path without ..");
        }
        let pairs = &self.read_only_at;
        if pairs.len() > MAX_COUNT || !pairs.iter().all(|(outside, inside)| absolute(outside) && absolute(inside)) {
            return refuse("read_only_at", "too many, or one is not an absolute path without ..");
        }
        if self.memory_bytes == 0 || self.tmpfs_bytes == 0 || self.max_processes == 0 || self.max_open_files == 0 {
            return refuse("limits", "must be above 0");
        }
        Ok(())
    }
}

/// Returns true if the path is absolute, in UTF-8, and without `..` or NUL.
fn absolute(path: &Path) -> bool {
    path.is_absolute()
        && path.to_str().is_some_and(|text| !text.contains('\0'))
        && path.components().all(|c| !matches!(c, Component::ParentDir))
}
