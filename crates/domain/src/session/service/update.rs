//! Changes active sessions.

use super::super::input::Refusal;
use super::super::{Created, Session, SessionUpdate, SessionUpdateRequest};
use super::errors::{name_taken, not_found};
use super::{Sessions, UpdateSessionError, UseSessionError, browser_of, check_start_url, hand_out};
use crate::access::Scope;
use crate::browser::{EngineError, HandOut, Shape, StartUrl, Viewport};
use crate::engine::describe;
use crate::field::InvalidInput;
use crate::network::AllowlistChange;
use crate::proxy::TrafficPolicy;
use crate::telemetry::{self, Capture, ConfigRequest};

impl Sessions {
    /// Changes an active session.
    ///
    /// # Errors
    /// See [`UpdateSessionError`].
    pub async fn update(
        &self,
        scope: &Scope,
        which: &str,
        mut request: SessionUpdateRequest,
    ) -> Result<Session, UpdateSessionError> {
        self.find_destination(scope, &mut request.telemetry).await.map_err(UseSessionError::from)?;
        let changes = request.parse().map_err(|refusal| match refusal {
            Refusal::Invalid(invalid) => UpdateSessionError::Use(invalid.into()),
            Refusal::NotSupported(unsupported) => unsupported.into(),
        })?;
        let session = self.get(scope, which, false).await?;
        session.admits(scope.organization_wide).map_err(UseSessionError::from)?;
        changes.check_engine(&describe(self.engines(), &session.shape.engine))?;
        let _in_use = self.in_use(&session)?;
        let size = changes.viewport.filter(|(size, _)| *size != session.shape.viewport);
        if matches!(size, Some((_, false))) && self.deps.activity.is_watched(session.id) {
            return Err(UpdateSessionError::Watched(session.id));
        }
        if matches!(size, Some((_, false)))
            && self.deps.engine.is_recording(browser_of(&session)?).await.map_err(UseSessionError::from)?
        {
            return Err(UpdateSessionError::Recorded(session.id));
        }
        check_network(&session, &changes)?;
        let proxy = match &changes.proxy {
            None => None,
            Some(selected) => {
                let proxy = self.deps.proxies.select::<UseSessionError>(scope, selected).await?;
                let shape = Shape { proxy, ..session.shape.clone() };
                let policy = self.deps.proxies.prepare(&shape).await;
                Some((shape, policy.map_err(|error| UseSessionError::Engine(error.into()))?))
            }
        };
        if let Some(request) = &changes.telemetry {
            captured(&session, request)?;
        }
        let relocation = match changes.location {
            Some(change) => Some(self.prepare_relocation(&session, change).await?),
            None => None,
        };
        let profile = match &changes.profile {
            Some(requested) => Some(self.reserve_profile(scope, &session, requested).await?),
            None => None,
        };
        // Steps that can be refused come first and are undone after an error, so that nothing is changed then.
        if let Some((viewport, _)) = size {
            self.resize(&session, viewport).await?;
        }
        match self.deps.sessions.change(session.id, &changes).await.map_err(UseSessionError::from) {
            Ok(Some(Created::NameTaken)) => {
                self.undo_size(&session, size.is_some()).await;
                let name = changes.name.flatten().unwrap_or_else(|| unreachable!("only a name can be taken"));
                return Err(name_taken(&name).into());
            }
            Ok(Some(_)) => {}
            refused => {
                self.undo_size(&session, size.is_some()).await;
                refused.map_err(|error| if size.is_some() { half_done(error.into()) } else { error.into() })?;
                return Err(UseSessionError::from(not_found(which)).into());
            }
        }
        if let Some(profile) = profile
            && let Err(error) = self.load_profile(&session, profile).await
        {
            let before = before(&session, &changes);
            if before.name.is_some() || before.tags.is_some() {
                let _ = self.deps.sessions.change(session.id, &before).await;
            }
            self.undo_size(&session, size.is_some()).await;
            return Err(half_done(error));
        }
        let rest = async {
            if let Some((viewport, _)) = size {
                self.deps.sessions.set_viewport(session.id, viewport).await.map_err(UseSessionError::from)?;
            }
            if let Some((shape, policy)) = proxy {
                // Stores the proxy before it takes effect, because a restarted server uses the stored proxy.
                if !self.deps.sessions.set_proxy(session.id, shape.proxy).await.map_err(UseSessionError::from)? {
                    return Err(UseSessionError::from(not_found(which)).into());
                }
                self.send_as_stored(scope, &session, shape, policy).await?;
            }
            if let Some(change) = &changes.allowlist {
                self.change_allowlist(scope, &session, change, which).await?;
            }
            if let Some(request) = &changes.telemetry {
                self.recapture(&session, request, which).await?;
            }
            if let Some(relocation) = relocation {
                self.relocate(&session, relocation).await?;
            }
            if let Some(url) = &changes.start_url {
                self.open(&session, url).await?;
            }
            Ok(self.get(scope, &session.id.to_string(), false).await?)
        };
        rest.await.map_err(half_done)
    }

    /// Begins to open a URL in a page that answers.
    async fn open(&self, session: &Session, url: &StartUrl) -> Result<(), UseSessionError> {
        let to = HandOut { start_url: Some(url.clone()), ..hand_out(session) };
        Ok(self.deps.engine.hand_out(browser_of(session)?, to).await?)
    }

    /// Restores the size of the session's display.
    async fn undo_size(&self, session: &Session, was_changed: bool) {
        if let (true, Some(browser)) = (was_changed, session.browser) {
            let _ = self.deps.engine.set_viewport(browser, session.shape.viewport).await;
        }
    }

    /// Routes the session's traffic through the stored proxy. Of two concurrent changes the one that is stored last
    /// takes effect, because each call reads what is stored again after it has set its policy.
    async fn send_as_stored(
        &self,
        scope: &Scope,
        session: &Session,
        mut applied: Shape,
        policy: TrafficPolicy,
    ) -> Result<(), UpdateSessionError> {
        let browser = browser_of(session)?;
        self.deps.proxies.set(browser, policy);
        loop {
            let stored = self.get(scope, &session.id.to_string(), false).await?.shape;
            if (stored.proxy, &stored.network) == (applied.proxy, &applied.network) {
                return Ok(());
            }
            let sent = self.deps.proxies.send(browser, &stored).await;
            sent.map_err(|error| UseSessionError::Engine(error.into()))?;
            applied = stored;
        }
    }

    /// Stores a change of the allowed hosts and applies it. Of two concurrent changes the one that is stored last takes
    /// effect, as in [`send_as_stored`](Self::send_as_stored).
    async fn change_allowlist(
        &self,
        scope: &Scope,
        session: &Session,
        change: &AllowlistChange,
        which: &str,
    ) -> Result<(), UpdateSessionError> {
        let stored = self.deps.sessions.change_allowlist(session.id, change).await.map_err(UseSessionError::from)?;
        let mut applied = stored.ok_or_else(|| UseSessionError::from(not_found(which)))??.allowlist;
        let browser = browser_of(session)?;
        loop {
            self.deps.proxies.set_allowlist(browser, applied.clone());
            let shape = self.get(scope, &session.id.to_string(), false).await?.shape;
            let stored = shape.network.and_then(|network| network.allowlist);
            if stored == applied {
                return Ok(());
            }
            applied = stored;
        }
    }

    /// Applies a change of the telemetry capture.
    async fn recapture(
        &self,
        session: &Session,
        request: &ConfigRequest,
        which: &str,
    ) -> Result<(), UpdateSessionError> {
        let telemetry = captured(session, request)?;
        if telemetry == session.telemetry {
            return Ok(());
        }
        let stored = self.deps.sessions.set_telemetry(session.id, telemetry.clone()).await;
        if !stored.map_err(UseSessionError::from)? {
            return Err(UseSessionError::from(not_found(which)).into());
        }
        let changed = Session { telemetry, ..session.clone() };
        Ok(self.deps.recorder.capture(&changed).await.map_err(UseSessionError::from)?)
    }

    /// Resizes the session's display. If the display cannot become so large while Chromium runs, both restart.
    async fn resize(&self, session: &Session, viewport: Viewport) -> Result<(), UseSessionError> {
        let browser = browser_of(session)?;
        match self.deps.engine.set_viewport(browser, viewport).await {
            Err(EngineError::OutOfRange(_)) if !session.shape.headless => {}
            other => return Ok(other?),
        }
        self.deps.connections.restarted(session.id);
        let restarted = self.deps.engine.restart_with_viewport(browser, viewport).await;
        // Connections that were opened in between ended with the old browser.
        self.deps.connections.restarted(session.id);
        Ok(restarted?)
    }
}

/// Checks the change of the allowed hosts, which is stored later, and that they allow the URL to open.
fn check_network(session: &Session, changes: &SessionUpdate) -> Result<(), UpdateSessionError> {
    let mut shape = session.shape.clone();
    if let Some(change) = &changes.allowlist {
        shape.network = Some(shape.network.unwrap_or_default().changed(change)?);
    }
    check_start_url(&shape, changes.start_url.as_ref()).map_err(|invalid| UpdateSessionError::Use(invalid.into()))
}

/// Marks an error as one after a partial change, so that the response does not claim that nothing took effect.
fn half_done(error: UpdateSessionError) -> UpdateSessionError {
    let UpdateSessionError::Use(error) = error else { return error };
    UpdateSessionError::Use(match error {
        UseSessionError::Store(error) => error.with_maybe_done(true).into(),
        UseSessionError::Engine(EngineError::Failed { fault, message }) => EngineError::Lost { fault, message }.into(),
        other => other,
    })
}

/// Returns the telemetry capture after a change.
fn captured(session: &Session, request: &ConfigRequest) -> Result<Option<Capture>, UseSessionError> {
    let current = session.telemetry.as_ref();
    let next = telemetry::on_change(Some(request), current).and_then(|next| {
        telemetry::check_storage_unchanged(current, next.as_ref())?;
        Ok(next)
    });
    next.map_err(|bad| InvalidInput::of("telemetry", bad).into())
}

/// Returns the previous values of the name and tags that were changed.
fn before(session: &Session, changes: &SessionUpdate) -> SessionUpdate {
    SessionUpdate {
        name: changes.name.as_ref().map(|_| session.name.clone()),
        tags: changes.tags.as_ref().map(|_| session.tags.clone()),
        ..SessionUpdate::default()
    }
}
