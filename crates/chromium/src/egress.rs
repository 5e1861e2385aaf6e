//! The way out of a sandbox, as far as the engine knows it: a socket that somebody else serves.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixListener;

/// The name of the socket in its directory, which a sandbox sees as `/run/casement/egress`.
const SOCKET: &str = "egress.sock";

/// Serves the way out of sandboxes.
pub trait EgressPort: Send + Sync {
    /// Serves the browser `session` on `listener` until [`EgressPort::close`]. Begins at once and does not block.
    fn serve(&self, session: &str, listener: UnixListener);

    /// Stops serving that browser and ends its connections. One that is not served is fine.
    fn close(&self, session: &str);
}

/// The directory of a sandbox's way out, below the sandbox's own.
pub(crate) fn directory(sandbox: &Path) -> PathBuf {
    sandbox.join("egress")
}

/// Listens in the directory, in place of an earlier life's socket. Needs a runtime.
pub(crate) fn listen(sandbox: &Path) -> io::Result<UnixListener> {
    let directory = directory(sandbox);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&directory, flags, Mode::empty())?;
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
