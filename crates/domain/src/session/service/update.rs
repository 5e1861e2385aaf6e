//! A session is changed while it runs.

use super::super::input::Refusal;
use super::super::{Created, Session, UpdateSession};
use super::{Sessions, UpdateSessionError, UseSessionError, browser_of};
use crate::access::Scope;
use crate::browser::{EngineError, Viewport};
use crate::field::InvalidInput;
use crate::proxy::Route;
use crate::telemetry::{self, Wish};

impl Sessions {
    /// Changes an active session.
    ///
    /// # Errors
    /// See [`UpdateSessionError`].
    pub async fn update(&self, scope: &Scope, which: &str, wish: UpdateSession) -> Result<Session, UpdateSessionError> {
        let changes = wish.parse().map_err(|refusal| match refusal {
            Refusal::Invalid(invalid) => UpdateSessionError::Use(invalid.into()),
            Refusal::NotSupported(unsupported) => unsupported.into(),
        })?;
        let session = self.get(scope, which, false).await?;
        let _in_use = self.deps.activity.begin(session.id);
        let size = changes.viewport.filter(|(size, _)| *size != session.shape.viewport);
        if matches!(size, Some((_, false))) && self.deps.activity.is_watched(session.id) {
            return Err(UpdateSessionError::Watched(session.id));
        }
        if matches!(size, Some((_, false)))
            && self.deps.engine.is_recording(browser_of(&session)?).await.map_err(UseSessionError::from)?
        {
            return Err(UpdateSessionError::Recorded(session.id));
        }
        let proxy = match &changes.proxy {
            None => None,
            Some(None) => Some((None, Route::Direct)),
            Some(Some(asked)) => {
                let id = self.deps.proxies.resolve::<UseSessionError>(scope.project_id(), asked).await?;
                let route = self.deps.proxies.prepare(Some(id)).await;
                Some((Some(id), route.map_err(|error| UseSessionError::Engine(error.into()))?))
            }
        };
        // What fails most comes first, and then nothing is changed.
        if let Some(asked) = &changes.profile {
            self.load_profile(scope, &session, asked).await?;
        }
        if let Some((viewport, _)) = size {
            self.resize(&session, viewport).await?;
        }
        let changed = self.deps.sessions.change(session.id, &changes).await;
        if !matches!(changed, Ok(Some(Created::Yes))) && size.is_some() {
            let _ = self.deps.engine.set_viewport(browser_of(&session)?, session.shape.viewport).await;
        }
        match changed.map_err(UseSessionError::from)? {
            Some(Created::NameTaken) => {
                let name = changes.name.flatten().unwrap_or_else(|| unreachable!("only a name can be taken"));
                return Err(UpdateSessionError::NameTaken(name));
            }
            Some(_) => {}
            None => return Err(UseSessionError::NotFound(which.to_owned()).into()),
        }
        if let Some((viewport, _)) = size {
            self.deps.sessions.set_viewport(session.id, viewport).await.map_err(UseSessionError::from)?;
        }
        if let Some((proxy, route)) = proxy {
            // Stored before it counts: a server that starts anew goes by what is stored.
            if !self.deps.sessions.set_proxy(session.id, proxy).await.map_err(UseSessionError::from)? {
                return Err(UseSessionError::NotFound(which.to_owned()).into());
            }
            self.deps.proxies.set(browser_of(&session)?, route);
        }
        if let Some(wish) = &changes.telemetry {
            self.recapture(&session, wish, which).await?;
        }
        Ok(self.get(scope, &session.id.to_string(), false).await?)
    }

    /// Captures from now on what a change comes to.
    async fn recapture(&self, session: &Session, wish: &Wish, which: &str) -> Result<(), UpdateSessionError> {
        let telemetry = telemetry::on_change(Some(wish), session.telemetry.as_ref());
        let telemetry = telemetry.map_err(|bad| UseSessionError::from(InvalidInput::of("telemetry", bad)))?;
        if telemetry == session.telemetry {
            return Ok(());
        }
        let stored = self.deps.sessions.set_telemetry(session.id, telemetry.clone()).await;
        if !stored.map_err(UseSessionError::from)? {
            return Err(UseSessionError::NotFound(which.to_owned()).into());
        }
        let changed = Session { telemetry, ..session.clone() };
        Ok(self.deps.recorder.capture(&changed).await.map_err(UseSessionError::from)?)
    }

    /// Gives the session's display another size; if it cannot become so large while Chromium runs, both are started anew.
    async fn resize(&self, session: &Session, viewport: Viewport) -> Result<(), UseSessionError> {
        let browser = browser_of(session)?;
        match self.deps.engine.set_viewport(browser, viewport).await {
            Err(EngineError::OutOfRange(_)) if !session.shape.headless => {}
            other => return Ok(other?),
        }
        self.deps.connections.restarted(session.id);
        let restarted = self.deps.engine.restart_with_viewport(browser, viewport).await;
        // Those that came in between ended with the old browser, and are told so.
        self.deps.connections.restarted(session.id);
        Ok(restarted?)
    }
}
