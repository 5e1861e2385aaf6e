//! The ends of sessions, in the log.

use casement_domain::SessionId;
use casement_domain::session::{Connections, EndReason};
use casement_http::ConnectionRegistry;
use tracing::info;

/// The open connections; every session of this node that ends passes here.
pub(crate) struct LoggedConnections(pub(crate) ConnectionRegistry);

impl Connections for LoggedConnections {
    fn close(&self, session: SessionId, reason: EndReason) {
        info!(%session, reason = reason.as_str(), "a session has ended");
        self.0.close(session, reason);
    }

    fn restarted(&self, session: SessionId) {
        info!(%session, "the browser of a session is started anew");
        self.0.restarted(session);
    }
}
