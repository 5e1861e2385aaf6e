//! The errors of the private cluster.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::binaries::MINIMUM_MAJOR;

/// Why the private cluster can't be used. The messages name the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No supported PostgreSQL programs were found.
    #[error(
        "PostgreSQL {MINIMUM_MAJOR} or later is not installed (looked in {looked}); install the package `postgresql`, \
         or name a server with --database-url"
    )]
    NoBinaries {
        /// The places that were searched.
        looked: String,
    },
    /// The data directory was created by a major version that is not installed.
    #[error(
        "the data directory {} was made by PostgreSQL {found}, and this system has {available}; install PostgreSQL \
         {found} again, or carry the data over with `pg_upgrade` (or `pg_dump` from the old, `pg_restore` into the new)",
        data_dir.display()
    )]
    OtherMajor {
        /// The data directory.
        data_dir: PathBuf,
        /// The major version that created it, from `PG_VERSION`.
        found: String,
        /// The major versions that are installed.
        available: String,
    },
    /// The path of the data directory is in use for something else.
    #[error("{} exists, is not empty and is no PostgreSQL data directory; move it away or choose another --data-dir", .0.display())]
    NotACluster(PathBuf),
    /// Started as root, without an unprivileged account for PostgreSQL.
    #[error(
        "PostgreSQL refuses to run as root, and there is neither an account `casement` nor `postgres`; make one with \
         `useradd --system casement`, or install the package `postgresql`"
    )]
    NoAccount,
    /// Started as root, without the capability by which root sees the working directory of PostgreSQL.
    #[error(
        "root has no capability SYS_PTRACE here, without which it can't recognize its PostgreSQL; in a container add it \
         (`--cap-add SYS_PTRACE`), or name a server with --database-url"
    )]
    NoCapability,
    /// The account can't enter the parent of the data directory.
    #[error(
        "the account {account} that runs PostgreSQL can't enter {}; allow it with `chmod o+x {}`, or choose a \
         --data-dir that it can reach, such as /var/lib/casement",
        blocked.display(), blocked.display()
    )]
    NotTraversable {
        /// The account that needs access.
        account: String,
        /// The outermost directory that denies access.
        blocked: PathBuf,
    },
    /// The data directory belongs to another account.
    #[error("{} belongs to uid {owner}, but PostgreSQL would run as {account}; start as that user, or `chown -R` it", path.display())]
    ForeignOwner {
        /// The directory in question.
        path: PathBuf,
        /// The uid of the owner.
        owner: u32,
        /// The account that should own it.
        account: String,
    },
    /// The socket directory is not private.
    #[error("{} is not a private directory of {account} ({why}); remove it", path.display())]
    SocketDirectory {
        /// The directory in question.
        path: PathBuf,
        /// The account that should own it.
        account: String,
        /// The reason.
        why: String,
    },
    /// Another process has been starting this cluster for too long.
    #[error("another process holds {}; wait for it or end it", .0.display())]
    Locked(PathBuf),
    /// `initdb` failed.
    #[error("initdb could not make {}: {output}", data_dir.display())]
    Initdb {
        /// The data directory to create.
        data_dir: PathBuf,
        /// The beginning of its error output.
        output: String,
    },
    /// PostgreSQL ended during the start, or was not ready in time.
    #[error("PostgreSQL did not start ({why}); the end of {}: {tail}", log.display())]
    DidNotStart {
        /// What happened instead.
        why: String,
        /// The log file of PostgreSQL.
        log: PathBuf,
        /// The end of the log file.
        tail: String,
    },
    /// PostgreSQL runs, but does not answer as expected.
    #[error("the private PostgreSQL does not answer properly: {0}")]
    Unusable(String),
    /// PostgreSQL did not end in time.
    #[error("the postmaster {pid} did not end within {} s", waited.as_secs())]
    DidNotStop {
        /// The process id.
        pid: i32,
        /// The time waited for the end.
        waited: Duration,
    },
    /// A system call failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path of the action.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Adds the action and the path to an [`io::Error`].
pub(crate) trait IoContext<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, ClusterError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, ClusterError> {
        self.map_err(|source| ClusterError::Io { action, path: path.to_owned(), source: source.into() })
    }
}
