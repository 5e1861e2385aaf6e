//! The socket in a sandbox's directory through which the sandbox reaches its egress.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixListener;

/// The name of the socket in its directory, which a sandbox sees as `/run/casement/egress`.
const SOCKET: &str = "egress.sock";

/// Returns the directory of a sandbox's egress socket, below the sandbox's own.
#[must_use]
pub fn egress_directory(sandbox: &Path) -> PathBuf {
    sandbox.join("egress")
}

/// Listens in [`egress_directory`], and replaces an old socket. Must be called within a runtime.
///
/// # Errors
/// The directory is missing or a symbolic link, or the socket cannot be created.
pub fn listen_for_egress(sandbox: &Path) -> io::Result<UnixListener> {
    UnixListener::from_std(listen_beside_egress(sandbox, OsStr::new(SOCKET))?)
}

/// Listens at another name in [`egress_directory`], for a sandbox whose way out is not an egress, and replaces an old
/// socket. The listener is non-blocking.
///
/// # Errors
/// As [`listen_for_egress`].
pub fn listen_beside_egress(sandbox: &Path, name: &OsStr) -> io::Result<std::os::unix::net::UnixListener> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(egress_directory(sandbox), flags, Mode::empty())?;
    // This path fits into a socket's address even if the real one is too long.
    let socket = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(name);
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(&socket)?;
    // The permissions of the directory decide who may connect.
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
