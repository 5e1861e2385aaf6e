//! Changes the time zone and the locale of a session.

use super::super::Session;
use super::{Sessions, UseSessionError, browser_of, not_found};
use crate::browser::{Location, LocationChange};

/// A change of the location.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relocation {
    location: Location,
    /// True if Chromium must restart.
    restarts: bool,
}

impl Sessions {
    /// Prepares a change of the location, before anything of the session changes.
    pub(super) async fn prepare_relocation(
        &self,
        session: &Session,
        change: LocationChange,
    ) -> Result<Relocation, UseSessionError> {
        let location = change.onto(session.shape.location);
        let restarts = !self.deps.engine.has_location(browser_of(session)?, location).await?;
        Ok(Relocation { location, restarts })
    }

    /// Stores the location and restarts the browser with it. After a failure the same request can be repeated.
    pub(super) async fn relocate(
        &self,
        session: &Session,
        Relocation { location, restarts }: Relocation,
    ) -> Result<(), UseSessionError> {
        if !self.deps.sessions.set_location(session.id, location).await? {
            return Err(not_found(session.id.to_string()).into());
        }
        if !restarts {
            return Ok(());
        }
        self.deps.connections.restarted(session.id);
        let restarted = self.deps.engine.restart_with_location(browser_of(session)?, location).await;
        // Connections that were opened in between ended with the old browser.
        self.deps.connections.restarted(session.id);
        Ok(restarted?)
    }
}
