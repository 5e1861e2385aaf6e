//! The egress of a sandbox: a port that is implemented elsewhere.

use tokio::net::UnixListener;

/// Serves the egress of sandboxes.
pub trait EgressPort: Send + Sync {
    /// Serves the browser `session` on `listener` until [`EgressPort::close`]. Starts at once and does not block.
    fn serve(&self, session: &str, listener: UnixListener);

    /// Stops serving that browser and ends its connections. Does nothing if it is not served.
    fn close(&self, session: &str);
}
