//! The configuration of builds and app runners.

use std::path::{Path, PathBuf};

use casement_domain::invocation::CallLimits;
use casement_sandbox::{HostError, find_program};

/// The configuration of builds and app runners.
#[derive(Clone, Debug)]
pub struct AppRunnerConfig {
    /// The directory of sandboxes, artifacts and call records, used by one server at a time. Sandboxes' users must be
    /// able to traverse it.
    pub data_dir: PathBuf,
    /// The program that runs the app runner when called with `args`, and [`casement_sandbox::prepare_network`] when
    /// called with `network` and its arguments.
    pub program: PathBuf,
    /// The arguments of the app runner.
    pub args: Vec<String>,
    /// A folder with `bin/node` that sandboxes' users can read. If `None`, Node programs cannot be built.
    pub node: Option<PathBuf>,
    /// The path of `npm-cli.js`, if npm is installed.
    pub npm: Option<PathBuf>,
    /// The path of Python 3.9 or later, below `/usr`.
    pub python: PathBuf,
    /// The path of bubblewrap.
    pub bwrap: PathBuf,
    /// The path of `setpriv` of util-linux, needed as root only.
    pub setpriv: PathBuf,
    /// As root: the first uid of sandboxes' users.
    pub uid_base: u32,
    /// As root: the number of sandboxes' users.
    pub uid_count: u32,
    /// The registries that builds may reach, each `host:port`.
    pub registries: Vec<String>,
    /// The package index for pip, if it is not PyPI.
    pub pip_index: Option<String>,
    /// The registry for npm, if it is not npm's own.
    pub npm_registry: Option<String>,
    /// The default limits of a call; ready processes are started with them.
    pub call_limits: CallLimits,
    /// The memory limit of all processes of a build together, in bytes.
    pub build_memory_bytes: u64,
    /// The disk limit of a build in bytes: the package, its dependencies and temporary files.
    pub build_disk_bytes: u64,
    /// The timeout of fetching a source and of installing dependencies, in seconds.
    pub build_seconds: u64,
    /// The timeout of loading an entrypoint, in seconds.
    pub load_seconds: u64,
    /// The time in seconds after which a deployment fails if all loads of its processes time out.
    pub give_up_seconds: u64,
    /// The memory in bytes above which the app runner ends its program, in every sandbox. `None`: the sandbox's own
    /// limit, and only if the kernel enforces no limit.
    pub watch_memory_bytes: Option<u64>,
}

/// The public registries.
const REGISTRIES: [&str; 3] = ["pypi.org:443", "files.pythonhosted.org:443", "registry.npmjs.org:443"];

impl AppRunnerConfig {
    /// Creates a configuration with default limits, `program` as app runner, and this system's other programs.
    #[must_use]
    pub fn discover(data_dir: PathBuf, program: PathBuf, args: Vec<String>) -> Self {
        let found = |name: &str, else_at: &str| find_program(&[name]).unwrap_or_else(|| PathBuf::from(else_at));
        Self {
            data_dir,
            program,
            args,
            node: None,
            npm: find_program(&["npm"]).filter(|npm| npm.extension().is_some_and(|end| end == "js")),
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

/// Returns the path of the certificates that this system trusts.
pub(crate) fn ca_bundle() -> Option<&'static Path> {
    let places = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
    places.map(Path::new).into_iter().find(|path| path.is_file())
}

/// This host cannot build or run deployments.
#[derive(Debug, thiserror::Error)]
pub enum AppRunnerSetupError {
    /// The host cannot run sandboxes.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A directory cannot be created.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The path of the directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}
