//! The directory of the cluster's socket: short, because a socket's path holds at most 107 bytes, and private, because
//! whoever can open the socket is let in.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::account::Account;
use super::error::{ClusterError, IoContext};
use super::guarded;

/// PostgreSQL puts its port into the socket's name even when it listens on no port.
pub(super) const SOCKET_NAME: &str = ".s.PGSQL.5432";

/// Makes (or finds again) the directory that belongs to this data directory.
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

/// Makes a directory that only the account may enter, or checks the one that is there.
pub(crate) fn make_private(dir: &Path, account: &Account) -> Result<(), ClusterError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => account.give(guarded::open_dir(dir).on("opening", dir)?, dir)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Killed between making it and handing it over: it is still root's, empty and nobody else's.
            // What is no directory of its own, the check below names.
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

/// Refuses a directory that is a link, that somebody else owns, or that others may enter.
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

/// Clears away the socket of a killed postmaster and the lock of it, whose number may belong to somebody else by now: PostgreSQL would
/// take that for another postmaster. Only for a directory whose postmaster is known to be gone.
pub(super) fn clear_leftovers(dir: &Path) -> Result<(), ClusterError> {
    for name in [SOCKET_NAME.to_owned(), format!("{SOCKET_NAME}.lock")] {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).on("clearing away", dir),
            _ => {}
        }
    }
    Ok(())
}

/// Whether somebody listens there.
pub(super) fn answers(dir: &Path) -> bool {
    UnixStream::connect(dir.join(SOCKET_NAME)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In `/tmp` anybody can wait with a directory of that name.
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
