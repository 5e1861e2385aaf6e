//! The way out of a sandbox, as far as this crate knows it: a socket that somebody else serves.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixListener;

/// The name of the socket in its directory, which a sandbox sees as `/run/casement/egress`.
const SOCKET: &str = "egress.sock";

/// What a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressPolicy {
    /// These places and nothing else, each `host:port`; wherever they lie, for the operator has named them.
    Only(Vec<String>),
    /// The public internet, what the operator allows everybody, and these places, each `host:port`, wherever they lie.
    Web(Vec<String>),
}

/// Serves the ways out of sandboxes.
pub trait AppEgressPort: Send + Sync {
    /// Serves the sandbox of this name on `listener` until [`AppEgressPort::close`]. Begins at once and does not block.
    fn serve(&self, sandbox: &str, listener: UnixListener, reach: EgressPolicy);

    /// Stops serving that sandbox and ends its connections. One that is not served is fine.
    fn close(&self, sandbox: &str);
}

/// The directory of a sandbox's way out, below the sandbox's own.
pub(crate) fn directory(sandbox: &Path) -> PathBuf {
    sandbox.join("egress")
}

/// Listens in the directory, in place of an earlier life's socket. Needs a runtime.
pub(crate) fn listen(sandbox: &Path) -> io::Result<UnixListener> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory(sandbox), flags, Mode::empty())?;
    // However long the path is, by this name it fits into a socket's address.
    let socket = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()));
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(&socket)?;
    // The directory decides who comes in.
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}
