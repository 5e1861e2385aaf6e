//! Resolves and loads the profile of a session.

use super::super::Session;
use super::{Sessions, UpdateSessionError, UseSessionError, browser_of, not_found};
use crate::access::Scope;
use crate::browser::{EngineError, Shape};
use crate::field::InvalidInput;
use crate::permission::{Kind, Verb};
use crate::profile::{ExclusiveSave, LoadedProfile, ProfileRequest};
use crate::store_error::StoreError;

impl Sessions {
    /// Resolves the profile for a browser. A session that saves its changes also changes the profile.
    pub(crate) async fn profile<E: From<InvalidInput> + From<StoreError>>(
        &self,
        scope: &Scope,
        request: &ProfileRequest,
    ) -> Result<LoadedProfile, E> {
        let found = self.deps.profiles.resolve::<E>(scope, &request.which).await?;
        if request.save_changes {
            let allowed = scope.allow(Verb::Update, scope.target(Kind::Profiles, found.id.ulid()));
            allowed.map_err(|bad| InvalidInput::of("profile", bad))?;
        }
        Ok(LoadedProfile { id: found.id, version: found.version, save_changes: request.save_changes })
    }

    /// Reserves a profile for a session that has none. Until the guard is dropped, no other call can.
    pub(super) async fn reserve_profile(
        &self,
        scope: &Scope,
        session: &Session,
        request: &ProfileRequest,
    ) -> Result<(LoadedProfile, ExclusiveSave), UpdateSessionError> {
        let profile = self.profile::<UseSessionError>(scope, request).await?;
        let taken = || UpdateSessionError::HasProfile(session.id);
        let alone = self.deps.profiles.alone(browser_of(session)?).ok_or_else(taken)?;
        // Reads the session again, because the previous holder of the guard may have stored a profile.
        let now = self.get(scope, &session.id.to_string(), false).await?;
        if now.shape.profile.is_some() { Err(taken()) } else { Ok((profile, alone)) }
    }

    /// Loads a profile into a leased session that its caller has not received; its browser restarts unless nothing is
    /// stored in the profile. Returns the session with its profile.
    ///
    /// # Errors
    /// See [`UpdateSessionError`].
    pub(crate) async fn load_into_lease(
        &self,
        session: &Session,
        profile: LoadedProfile,
    ) -> Result<Session, UpdateSessionError> {
        let _in_use = self.in_use(session)?;
        // The caller may have waited in the queue since the profile was resolved.
        let current = self.deps.profiles.current(Some(profile)).await.map_err(UseSessionError::from)?;
        let was_saved = profile.version.is_some();
        let profile = current.unwrap_or(profile);
        if was_saved && profile.version.is_none() {
            let deleted = EngineError::Profile("the profile was deleted during the request".to_owned());
            return Err(UpdateSessionError::Profile(deleted.into()));
        }
        let taken = || UpdateSessionError::HasProfile(session.id);
        let alone = self.deps.profiles.alone(browser_of(session)?).ok_or_else(taken)?;
        self.load_profile(session, (profile, alone)).await?;
        Ok(Session { shape: Shape { profile: Some(profile), ..session.shape.clone() }, ..session.clone() })
    }

    /// Loads the reserved profile into the session; its browser restarts.
    pub(super) async fn load_profile(
        &self,
        session: &Session,
        (profile, _alone): (LoadedProfile, ExclusiveSave),
    ) -> Result<(), UpdateSessionError> {
        if profile.version.is_some() {
            self.deps.connections.restarted(session.id);
            let loaded = self.deps.profiles.load(browser_of(session)?, &profile).await;
            // Connections that were opened in between ended with the old browser.
            self.deps.connections.restarted(session.id);
            loaded?;
        }
        let at = self.deps.clock.now();
        self.deps.profiles.used(profile.id, at).await.map_err(UseSessionError::from)?;
        match self.deps.sessions.set_profile(session.id, profile).await.map_err(UseSessionError::from)? {
            true => Ok(()),
            false => Err(UseSessionError::from(not_found(session.id.to_string())).into()),
        }
    }
}
