//! How programs are built and run, and where what that needs lies.

use std::path::{Path, PathBuf};

use casement_domain::invocation::CallLimits;
use casement_sandbox::HostError;

/// How programs are built and run.
#[derive(Clone, Debug)]
pub struct AppRunnerConfig {
    /// All of it lives below here: sandboxes, artifacts, calls. One server at a time; sandboxes' users must be able to pass through.
    pub data_dir: PathBuf,
    /// The program that is [`crate::inside`] when called with `args`, and [`casement_sandbox::prepare_network`] when called with `network`
    /// and what that takes.
    pub program: PathBuf,
    /// What it is called with.
    pub args: Vec<String>,
    /// A folder with `bin/node` in it, which sandboxes' users can reach. Without one, programs for Node are not built.
    pub node: Option<PathBuf>,
    /// The `npm-cli.js` of an npm, where there is one.
    pub npm: Option<PathBuf>,
    /// Python 3.9 or later, below `/usr`.
    pub python: PathBuf,
    /// bubblewrap.
    pub bwrap: PathBuf,
    /// `setpriv` of util-linux, needed as root only.
    pub setpriv: PathBuf,
    /// As root: the first of the users of this machine that sandboxes run as.
    pub uid_base: u32,
    /// As root: how many such users there are.
    pub uid_count: u32,
    /// Where builds may fetch packages, each `host:port`.
    pub registries: Vec<String>,
    /// The index that pip asks, unless it is PyPI.
    pub pip_index: Option<String>,
    /// The registry that npm asks, unless it is npm's own.
    pub npm_registry: Option<String>,
    /// What a call may use, unless it says otherwise: processes that wait are made with it.
    pub call_limits: CallLimits,
    /// The most memory of all processes of a build, in bytes.
    pub build_memory_bytes: u64,
    /// The most bytes of files of a build: a package, what is installed for it, and what that needs meanwhile.
    pub build_disk_bytes: u64,
    /// For how long dependencies are installed, and a source is fetched, in seconds.
    pub build_seconds: u64,
    /// How long an entrypoint may take to be loaded, in seconds.
    pub load_seconds: u64,
    /// For how long a deployment is kept of which no process is loaded in time, in seconds.
    pub give_up_seconds: u64,
    /// Memory, in bytes, above which what runs in a sandbox is ended by its first program, wherever it runs. `None`: its own limit, and only
    /// where the kernel holds nothing down.
    pub watch_memory_bytes: Option<u64>,
}

/// The public registries.
const REGISTRIES: [&str; 3] = ["pypi.org:443", "files.pythonhosted.org:443", "registry.npmjs.org:443"];

impl AppRunnerConfig {
    /// The usual limits, the running program as the inside, and the other programs where this system has them.
    #[must_use]
    pub fn discover(data_dir: PathBuf, program: PathBuf, args: Vec<String>) -> Self {
        let found = |name: &str, else_at: &str| find(name).unwrap_or_else(|| PathBuf::from(else_at));
        Self {
            data_dir,
            program,
            args,
            node: None,
            npm: find("npm").filter(|npm| npm.extension().is_some_and(|end| end == "js")),
            python: PathBuf::from("/usr/bin/python3"),
            bwrap: found("bwrap", "/usr/bin/bwrap"),
            setpriv: found("setpriv", "/usr/bin/setpriv"),
            uid_base: 1_900_000_000,
            uid_count: 10_000,
            registries: REGISTRIES.map(str::to_owned).to_vec(),
            pip_index: None,
            npm_registry: None,
            call_limits: CallLimits::DEFAULT,
            build_memory_bytes: 2 << 30,
            build_disk_bytes: 4 << 30,
            build_seconds: 600,
            load_seconds: 60,
            give_up_seconds: 900,
            watch_memory_bytes: None,
        }
    }
}

/// A program on `PATH`, at its real place: a link may lead out of what a sandbox sees.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).chain([PathBuf::from("/usr/bin")]).collect();
    let found = places.iter().map(|place| place.join(name)).find(|path| path.is_absolute() && path.is_file());
    found.and_then(|path| path.canonicalize().ok())
}

/// The certificates that this system trusts, as one file.
pub(crate) fn trusted() -> Option<&'static Path> {
    let places = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
    places.map(Path::new).into_iter().find(|path| path.is_file())
}

/// Programs cannot be built and run here.
#[derive(Debug, thiserror::Error)]
pub enum AppRunnerSetupError {
    /// There can be no sandboxes.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A directory cannot be made.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}
