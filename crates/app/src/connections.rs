//! Logs the ends of sessions.

use casement_domain::session::{Connections, EndReason, Session};
use casement_domain::{Clock as _, SessionId};
use casement_http::ConnectionRegistry;
use tracing::info;

use crate::system::System;

/// The open connections; every ended session of this node is reported here.
pub(crate) struct LoggedConnections(pub(crate) ConnectionRegistry);

impl Connections for LoggedConnections {
    fn close(&self, session: SessionId, reason: EndReason) {
        self.0.close(session, reason);
    }

    fn ended(&self, session: &Session, reason: EndReason) {
        let Session { id, project, .. } = session;
        let name = session.name.as_ref().map(|name| name.as_str());
        let lasted_seconds = session.uptime(System.now()).whole_seconds();
        info!(session = %id, name, %project, reason = reason.as_str(), lasted_seconds, "a session ended");
    }

    fn restarted(&self, session: SessionId) {
        info!(%session, "restarting the browser of a session");
        self.0.restarted(session);
    }
}
