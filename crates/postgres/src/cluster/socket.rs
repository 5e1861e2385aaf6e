//! The directory of the cluster's socket: short, because the path of a socket has at most 107 bytes, and private,
//! because the server accepts every process that can open the socket.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::account::Account;
use super::error::{ClusterError, IoContext};
use super::guarded;

/// The file name of the socket. PostgreSQL includes the port even if it listens on none.
pub(super) const SOCKET_NAME: &str = ".s.PGSQL.5432";

/// Creates the socket directory of this data directory, or finds the existing one.
pub(super) fn prepare(data_dir: &Path, account: &Account) -> Result<PathBuf, ClusterError> {
    let digest = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
    let short: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let root = rustix::process::geteuid().is_root();
    let dir = if root && Path::new("/run").is_dir() {
        PathBuf::from(format!("/run/casement-{short}"))
    } else {
        PathBuf::from(format!("/tmp/casement-{}-{short}", account.uid))
    };
    make_private(&dir, account)?;
    Ok(dir)
}

/// Creates a directory that only the account may enter, or checks the existing one.
pub(crate) fn make_private(dir: &Path, account: &Account) -> Result<(), ClusterError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => account.give(guarded::open_dir(dir).on("opening", dir)?, dir)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A start that was killed between creating the directory and changing its owner leaves it to root.
            // The check below reports what is not a directory.
            if let Ok(open) = guarded::open_dir(dir)
                && rustix::fs::fstat(&open).on("looking at", dir)?.st_uid == 0
                && rustix::process::geteuid().is_root()
            {
                account.give(open, dir)?;
            }
        }
        Err(error) => return Err(error).on("making", dir),
    }
    check(dir, account)
}

/// Refuses a directory that is a link, that another account owns, or that others may enter.
pub(super) fn check(dir: &Path, account: &Account) -> Result<(), ClusterError> {
    let meta = fs::symlink_metadata(dir).on("looking at", dir)?;
    let why = if !meta.is_dir() {
        Some("it is not a directory".to_owned())
    } else if meta.uid() != account.uid {
        Some(format!("it belongs to uid {}", meta.uid()))
    } else if meta.mode() & 0o077 != 0 {
        Some(format!("its mode is {:o}", meta.mode() & 0o7777))
    } else {
        None
    };
    match why {
        Some(why) => Err(ClusterError::SocketDirectory { path: dir.to_owned(), account: account.name.clone(), why }),
        None => Ok(()),
    }
}

/// Removes the socket of a killed server and its lock file, whose process id may belong to another process by now:
/// PostgreSQL would take that for another server. Only for a directory whose server is known to have ended.
pub(super) fn clear_leftovers(dir: &Path) -> Result<(), ClusterError> {
    for name in [SOCKET_NAME.to_owned(), format!("{SOCKET_NAME}.lock")] {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).on("clearing away", dir),
            _ => {}
        }
    }
    Ok(())
}

/// Whether a process listens on the socket.
pub(super) fn answers(dir: &Path) -> bool {
    UnixStream::connect(dir.join(SOCKET_NAME)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In `/tmp` any user can create a directory of that name in advance.
    #[test]
    fn a_directory_that_is_not_ours_alone_is_refused() -> Result<(), Box<dyn std::error::Error>> {
        let account = Account::choose()?;
        let base = tempfile::tempdir()?;
        let (open, link, ours) = (base.path().join("open"), base.path().join("link"), base.path().join("ours"));
        DirBuilder::new().mode(0o755).create(&open)?;
        std::os::unix::fs::symlink(&open, &link)?;

        assert!(matches!(make_private(&open, &account), Err(ClusterError::SocketDirectory { .. })));
        assert!(matches!(make_private(&link, &account), Err(ClusterError::SocketDirectory { .. })));
        make_private(&ours, &account)?;
        make_private(&ours, &account)?;
        assert_eq!(fs::metadata(&ours)?.mode() & 0o777, 0o700);
        Ok(())
    }
}
