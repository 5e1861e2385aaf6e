//! Logs the ends of sessions.

use casement_domain::SessionId;
use casement_domain::session::{Connections, EndReason};
use casement_http::ConnectionRegistry;
use tracing::info;

/// The open connections; every ended session of this node is reported here.
pub(crate) struct LoggedConnections(pub(crate) ConnectionRegistry);

impl Connections for LoggedConnections {
    fn close(&self, session: SessionId, reason: EndReason) {
        info!(%session, reason = reason.as_str(), "a session ended");
        self.0.close(session, reason);
    }

    fn restarted(&self, session: SessionId) {
        info!(%session, "restarting the browser of a session");
        self.0.restarted(session);
    }
}
