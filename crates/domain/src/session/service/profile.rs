//! The profile of a session: found and loaded when it begins, saved when it has ended.

use time::Duration;

use super::super::{EndReason, Session, SessionState};
use super::{Sessions, UpdateSessionError, UseSessionError, browser_of};
use crate::access::Scope;
use crate::browser::Browser;
use crate::field::InvalidInput;
use crate::ids::BrowserId;
use crate::profile::{LoadedProfile, NotSaved, ProfileWish};
use crate::store_error::StoreError;

/// For how long after a session's end it is tried to save what it left, if the place where it is kept fails.
const TRIED_FOR: Duration = Duration::minutes(10);

impl Sessions {
    /// What a browser is started with that is to have the profile.
    pub(super) async fn profile<E: From<InvalidInput> + From<StoreError>>(
        &self,
        scope: &Scope,
        wish: &ProfileWish,
    ) -> Result<LoadedProfile, E> {
        let found = self.deps.profiles.resolve::<E>(scope, &wish.which).await?;
        Ok(LoadedProfile { id: found.id, version: found.version, save_changes: wish.save_changes })
    }

    /// Gives a profile to a session that has none. Its browser is started anew with it.
    pub(super) async fn load_profile(
        &self,
        scope: &Scope,
        session: &Session,
        wish: &ProfileWish,
    ) -> Result<(), UpdateSessionError> {
        let profile = self.profile::<UseSessionError>(scope, wish).await?;
        let browser = browser_of(session)?;
        let taken = || UpdateSessionError::HasProfile(session.id);
        let _alone = self.deps.profiles.alone(browser).ok_or_else(taken)?;
        // Looked at again: whoever was at it before has noted what it has.
        let now = self.get(scope, &session.id.to_string(), false).await?;
        if now.shape.profile.is_some() {
            return Err(taken());
        }
        if profile.version.is_some() {
            self.deps.connections.restarted(session.id);
            let loaded = self.deps.profiles.load(browser, &profile).await;
            // Those that came in between ended with the old browser, and are told so.
            self.deps.connections.restarted(session.id);
            loaded?;
        }
        let at = self.deps.clock.now();
        self.deps.profiles.used(profile.id, at).await.map_err(UseSessionError::from)?;
        match self.deps.sessions.set_profile(session.id, profile).await.map_err(UseSessionError::from)? {
            true => Ok(()),
            false => Err(UseSessionError::NotFound(session.id.to_string()).into()),
        }
    }

    /// Saves what an ended session left, if it was to be saved, and buries its browser. What fails for now is done again by the
    /// node's housekeeping.
    pub(super) async fn take_leave(&self, ended: &Session, browser: BrowserId) {
        if ended.saves_its_profile() {
            // Whoever is at it buries the browser, too.
            let Some(_alone) = self.deps.profiles.alone(browser) else { return };
            if let Err(error) = self.deps.profiles.save(ended, browser).await {
                let since = ended.ended_at.map_or(Duration::ZERO, |at| self.deps.clock.now() - at);
                if matches!(error, NotSaved::Keeping(_)) && since < TRIED_FOR {
                    return;
                }
                self.deps.profiles.lost(ended, &error);
            }
        }
        self.bury(browser).await;
    }

    /// Buries a browser whose time is over, after what its session left is saved.
    pub(super) async fn lay_to_rest(&self, browser: &Browser) -> Result<(), StoreError> {
        match self.unsaved(browser).await? {
            Some(ended) => self.take_leave(&ended, browser.id).await,
            None => self.bury(browser.id).await,
        }
        Ok(())
    }

    /// What a session of a node that is gone had is gone, too.
    pub(super) fn lost_with_its_node(&self, ended: &Session) {
        if ended.state == SessionState::Ended(EndReason::NodeLost) && ended.saves_its_profile() {
            self.deps.profiles.lost(ended, &NotSaved::NodeGone);
        }
    }

    /// The ended session that left something to be saved in that browser.
    pub(super) async fn unsaved(&self, browser: &Browser) -> Result<Option<Session>, StoreError> {
        let (Some(session), Some(_)) = (browser.session, browser.shape.profile.filter(|one| one.save_changes)) else {
            return Ok(None);
        };
        let found = self.deps.sessions.find(session).await?;
        Ok(found.filter(|found| matches!(found.state, SessionState::Ended(_)) && found.saves_its_profile()))
    }
}
