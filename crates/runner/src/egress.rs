//! The egress of a sandbox: a port that is implemented elsewhere, and the socket in the sandbox's directory.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixListener;

/// The name of the socket in its directory, which a sandbox sees as `/run/casement/egress`.
const SOCKET: &str = "egress.sock";

/// The destinations that a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressPolicy {
    /// Only these destinations, each `host:port`, at any address, because the operator allowed them.
    Only(Vec<String>),
    /// The public internet, the operator's exceptions, and these destinations, each `host:port`, at any address.
    Web(Vec<String>),
}

/// Serves the egress of sandboxes.
pub trait AppEgressPort: Send + Sync {
    /// Serves the sandbox of this name on `listener` until [`AppEgressPort::close`]. Starts at once and does not block.
    fn serve(&self, sandbox: &str, listener: UnixListener, reach: EgressPolicy);

    /// Stops serving that sandbox and ends its connections. Does nothing if it is not served.
    fn close(&self, sandbox: &str);
}

/// Returns the directory of a sandbox's egress socket, below the sandbox's own.
pub(crate) fn directory(sandbox: &Path) -> PathBuf {
    sandbox.join("egress")
}

/// Listens in the directory, and replaces an old socket. Must be called within a runtime.
pub(crate) fn listen(sandbox: &Path) -> io::Result<UnixListener> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory(sandbox), flags, Mode::empty())?;
    // This path fits into a socket's address even if the real one is too long.
    let socket = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()));
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(&socket)?;
    // The permissions of the directory decide who may connect.
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}
