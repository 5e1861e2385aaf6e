//! The time zone and the locale of browsers.

use casement_agent_protocol::extension::RestartRequest;
use casement_domain::browser::{EngineError, Location};
use casement_domain::ids::BrowserId;

use crate::engine::Engine;
use crate::fault::{lost_restart, shorten};
use crate::restart::RestartError;
use crate::running::Running;

impl Engine {
    /// Checks that a browser that is to be started can have the location.
    pub(crate) fn check_location(&self, location: Location) -> Result<(), EngineError> {
        match location.locale {
            Some(locale) if self.0.locales.is_none() => {
                Err(EngineError::Location(format!("this node has no files for the locale {}", locale.as_str())))
            }
            _ => Ok(()),
        }
    }

    /// Returns the location for an agent.
    pub(crate) fn agent_location(&self, location: Location) -> casement_agent_protocol::Location {
        let time_zone = location.time_zone.map(|zone| zone.as_str().to_owned());
        casement_agent_protocol::Location {
            time_zone: time_zone.or_else(|| self.0.config.time_zone.clone()),
            locale: location.locale.map(|locale| locale.as_str().to_owned()),
        }
    }

    /// Returns whether the browser was last started with this location.
    pub(crate) async fn is_at(&self, running: &Running, location: Location) -> Result<bool, EngineError> {
        let status = running.agent.status().await.map_err(|error| running.failed(&error))?;
        let too_old =
            || EngineError::Location("the browser was started by an earlier version of the server".to_owned());
        let current = status.location.ok_or_else(too_old)?;
        Ok(current == self.agent_location(location))
    }

    /// Restarts the browser with another location.
    pub(crate) async fn relocate(&self, id: BrowserId, location: Location) -> Result<(), EngineError> {
        let running = self.running(id)?;
        if running.remote.is_some() {
            return Err(EngineError::Location("a remote browser keeps its location".to_owned()));
        }
        let _turn = running.changing.lock().await;
        let request = RestartRequest { location: Some(self.agent_location(location)), ..RestartRequest::default() };
        self.restart(&running, &request).await.map_err(|error| match error {
            RestartError::Refused(body) => EngineError::Location(shorten(body.message)),
            RestartError::Extension(why) => lost_restart(&why),
            RestartError::Failed(error) => error,
        })
    }
}
