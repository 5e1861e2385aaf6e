//! The egress of a sandbox: a port that is implemented elsewhere.

use tokio::net::UnixListener;

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
