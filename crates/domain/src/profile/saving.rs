//! What sessions and pools do with profiles: find them, load them, save them.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::stored::{StoreVersionError, not_stored, unreadable};
use super::{LoadedProfile, Profile, ProfileMachine, ProfileReports, ProfileVersions, VersionStored};
use crate::access::Scope;
use crate::blob::BlobError;
use crate::browser::EngineError;
use crate::clock::IdSource;
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{BrowserId, ProfileId, ProfileVersionId};
use crate::reference::Reference;
use crate::session::{IdOrName, PoolWake, Session};
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// What a session leaves was not saved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSaved {
    /// Its browser does not give it.
    #[error("the browser's state could not be taken: {0}")]
    Machine(#[from] OperationError),
    /// Its node is gone, with its browser.
    #[error("its node is gone")]
    NodeGone,
    /// It could not be kept. The same may work later.
    #[error("the browser's state could not be kept: {0}")]
    Keeping(StoreVersionError),
}

impl From<StoreVersionError> for NotSaved {
    fn from(error: StoreVersionError) -> Self {
        match error {
            StoreVersionError::Blob(BlobError::Content(error)) => Self::Machine(error),
            other => Self::Keeping(other),
        }
    }
}

/// The ports of the use cases.
#[derive(Clone)]
pub struct ProfileDeps {
    /// The profiles and their bytes.
    pub stored: ProfileVersions,
    /// What takes user data out of browsers and brings it in. It bounds how long and how large.
    pub machine: Arc<dyn ProfileMachine>,
    /// Who is told how it went.
    pub reports: Arc<dyn ProfileReports>,
    /// Who fills pools.
    pub pools: Arc<dyn PoolWake>,
    /// The source of new identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// The profiles of sessions and pools.
#[derive(Clone)]
pub struct SessionProfiles {
    deps: Option<ProfileDeps>,
    busy: Busy,
}

impl SessionProfiles {
    /// Creates it on these ports.
    #[must_use]
    pub fn new(deps: ProfileDeps) -> Self {
        Self { deps: Some(deps), busy: Busy::default() }
    }

    /// For an installation without profiles.
    #[must_use]
    pub fn none() -> Self {
        Self { deps: None, busy: Busy::default() }
    }

    /// The profile that is meant.
    ///
    /// # Errors
    /// `reference_not_found`; the store's failure.
    pub async fn resolve<E: From<InvalidInput> + From<StoreError>>(
        &self,
        scope: &Scope,
        which: &Reference,
    ) -> Result<Profile, E> {
        let which = match (&which.id, &which.name) {
            (Some(id), _) => id.parse().ok().map(IdOrName::Id),
            // No name is longer, or holds what the store cannot.
            (None, Some(name)) if name.chars().nth(255).is_some() || name.contains('\0') => None,
            (None, Some(name)) => Some(IdOrName::Name(name.clone())),
            (None, None) => None,
        };
        let found = match (&self.deps, which) {
            (Some(deps), Some(which)) => deps.stored.rows().find(scope, &which).await?,
            _ => None,
        };
        let missing = || InvalidValue::new(FieldCode::ReferenceNotFound, "there is no such profile");
        found.ok_or_else(|| InvalidInput::of("profile", missing()).into())
    }

    /// What a browser of a pool is to be started with now: the wish with the version that is current.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub(crate) async fn current(&self, request: Option<LoadedProfile>) -> Result<Option<LoadedProfile>, StoreError> {
        let (Some(deps), Some(request)) = (&self.deps, request) else { return Ok(request) };
        let found = deps.stored.rows().living(request.id).await?;
        Ok(Some(LoadedProfile { version: found.and_then(|profile| profile.version), ..request }))
    }

    /// Whoever has it is alone with the profile of that browser; `None` if somebody is at it.
    pub(crate) fn alone(&self, browser: BrowserId) -> Option<ExclusiveSave> {
        let first = self.busy.browsers().insert(browser);
        first.then(|| ExclusiveSave { busy: self.busy.clone(), browser })
    }

    /// Brings a profile into a browser that runs.
    ///
    /// # Errors
    /// See [`ProfileMachine::load`].
    pub(crate) async fn load(&self, browser: BrowserId, profile: &LoadedProfile) -> Result<(), OperationError> {
        let (Some(deps), Some(version)) = (&self.deps, profile.version) else { return Ok(()) };
        let unusable = |error: OperationError| OperationError::from(EngineError::Profile(error.to_string()));
        let archive = deps.stored.open(profile.id, version).await.map_err(|error| unusable(unreadable(&error)))?;
        deps.machine.load(browser, archive.ok_or_else(|| unusable(not_stored()))?).await
    }

    /// Notes that a browser was started with the profile.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub(crate) async fn used(&self, id: ProfileId, at: time::OffsetDateTime) -> Result<(), StoreError> {
        match &self.deps {
            Some(deps) => deps.stored.rows().used(id, at).await,
            None => Ok(()),
        }
    }

    /// Saves what the session leaves in its browser as another version, whole or not at all. The last to end wins.
    ///
    /// # Errors
    /// See [`NotSaved`]; nothing is kept then, or what is has no row and is swept.
    pub(crate) async fn save(&self, session: &Session, browser: BrowserId) -> Result<(), NotSaved> {
        let (Some(deps), Some(profile)) = (&self.deps, session.shape.profile) else { return Ok(()) };
        if deps.stored.rows().living(profile.id).await.map_err(StoreVersionError::from)?.is_none() {
            return Ok(());
        }
        let content = deps.machine.capture(browser).await?;
        let id = ProfileVersionId::mint(deps.ids.as_ref());
        let version = deps.stored.put(id, (session.id, profile), content).await?;
        // After an error the row may or may not exist; bytes without a row are cleaned up later.
        match deps.stored.rows().save(&version).await.map_err(StoreVersionError::from)? {
            VersionStored::Yes(saved) => {
                saved.pools.iter().for_each(|pool| deps.pools.wake(*pool));
                deps.reports.saved(session, &version, &saved);
            }
            VersionStored::NotWanted => {
                deps.stored.drop_bytes(profile.id, id).await.map_err(StoreVersionError::from)?
            }
        }
        Ok(())
    }

    /// Reports that saving failed and is retried.
    pub(crate) fn late(&self, session: &Session, why: &NotSaved) {
        if let (Some(deps), Some(profile)) = (&self.deps, session.shape.profile) {
            deps.reports.late(session, profile.id, &why.to_string());
        }
    }

    /// Reports that the session's changes are lost.
    pub(crate) fn lost(&self, session: &Session, why: &NotSaved) {
        if let (Some(deps), Some(profile)) = (&self.deps, session.shape.profile) {
            deps.reports.lost(session, profile.id, &why.to_string());
        }
    }
}

/// The browsers whose profiles are being saved or loaded.
#[derive(Clone, Debug, Default)]
struct Busy(Arc<Mutex<HashSet<BrowserId>>>);

impl Busy {
    fn browsers(&self) -> MutexGuard<'_, HashSet<BrowserId>> {
        self.0.lock()
    }
}

/// Exclusive access to the profile of a browser, until it is dropped; see [`SessionProfiles::alone`].
pub(crate) struct ExclusiveSave {
    busy: Busy,
    browser: BrowserId,
}

impl Drop for ExclusiveSave {
    fn drop(&mut self) {
        self.busy.browsers().remove(&self.browser);
    }
}
