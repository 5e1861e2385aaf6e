//! Why there is no private cluster.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::binaries::MINIMUM_MAJOR;

/// Why the private cluster can't be had. Every message says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No PostgreSQL programs on this system.
    #[error(
        "PostgreSQL {MINIMUM_MAJOR} or later is not installed (looked in {looked}); install the package `postgresql`, \
         or name a server with --database-url"
    )]
    NoBinaries {
        /// The places that were searched.
        looked: String,
    },
    /// The data directory belongs to a PostgreSQL that is not installed.
    #[error(
        "the data directory {} was made by PostgreSQL {found}, and this system has {available}; install PostgreSQL \
         {found} again, or carry the data over with `pg_upgrade` (or `pg_dump` from the old, `pg_restore` into the new)",
        data_dir.display()
    )]
    OtherMajor {
        /// The data directory.
        data_dir: PathBuf,
        /// The major version that made it, as it stands in `PG_VERSION`.
        found: String,
        /// The major versions that are installed.
        available: String,
    },
    /// Something else lies where the data directory should be.
    #[error("{} exists, is not empty and is no PostgreSQL data directory; move it away or choose another --data-dir", .0.display())]
    NotACluster(PathBuf),
    /// Started as root, and there is nobody to run PostgreSQL as.
    #[error(
        "PostgreSQL refuses to run as root, and there is neither an account `casement` nor `postgres`; make one with \
         `useradd --system casement`, or install the package `postgresql`"
    )]
    NoAccount,
    /// The account can't reach the data directory.
    #[error(
        "the account {account} that runs PostgreSQL can't enter {}; allow it with `chmod o+x {}`, or choose a \
         --data-dir that it can reach, such as /var/lib/casement",
        blocked.display(), blocked.display()
    )]
    NotTraversable {
        /// Who has to get there.
        account: String,
        /// The first directory on the way that is closed.
        blocked: PathBuf,
    },
    /// The data directory belongs to another account.
    #[error("{} belongs to uid {owner}, but PostgreSQL would run as {account}; start as that user, or `chown -R` it", path.display())]
    ForeignOwner {
        /// The directory in question.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who should own it.
        account: String,
    },
    /// The directory for the socket is not ours alone.
    #[error("{} is not a private directory of {account} ({why}); remove it", path.display())]
    SocketDirectory {
        /// The directory in question.
        path: PathBuf,
        /// Who should own it.
        account: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another process has been starting this cluster for too long.
    #[error("another process holds {}; wait for it or end it", .0.display())]
    Locked(PathBuf),
    /// `initdb` failed.
    #[error("initdb could not make {}: {output}", data_dir.display())]
    Initdb {
        /// The data directory that was to be made.
        data_dir: PathBuf,
        /// The end of what it printed.
        output: String,
    },
    /// The postmaster ended instead of answering, or did not answer in time.
    #[error("PostgreSQL did not start ({why}); the end of {}: {tail}", log.display())]
    DidNotStart {
        /// What was seen.
        why: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// It runs, but does not answer as it should.
    #[error("the private PostgreSQL does not answer properly: {0}")]
    Unusable(String),
    /// It would not end.
    #[error("the postmaster {pid} did not end within {} s", waited.as_secs())]
    DidNotStop {
        /// Its process id.
        pid: i32,
        /// How long we waited.
        waited: Duration,
    },
    /// The system refused something.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// Gives an [`io::Error`] the action and the path that it belongs to.
pub(crate) trait IoContext<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, ClusterError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, ClusterError> {
        self.map_err(|source| ClusterError::Io { action, path: path.to_owned(), source: source.into() })
    }
}
