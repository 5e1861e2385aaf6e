//! The use of profiles by sessions and pools: lookup, loading and saving.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use time::Duration;

use super::stored::{StoreVersionError, not_stored, unreadable};
use super::{LoadedProfile, Profile, ProfileMachine, ProfileReports, ProfileVersions, VersionStored};
use crate::access::Scope;
use crate::blob::BlobError;
use crate::browser::EngineError;
use crate::clock::IdSource;
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{BrowserId, ProfileId, ProfileVersionId};
use crate::permission::{Kind, Verb};
use crate::reference::Reference;
use crate::session::{IdOrName, PoolWake, SAVE_RETRY_TIMEOUT, Session};
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// The error of saving the profile of a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSaved {
    /// The user data cannot be captured from the browser.
    #[error("the browser's state could not be taken: {0}")]
    Machine(#[from] OperationError),
    /// The node of the session is lost, with the browser.
    #[error("its node was lost")]
    NodeLost,
    /// The user data could not be stored. A retry may succeed.
    #[error("the browser's state could not be stored: {0}")]
    Storing(StoreVersionError),
}

impl NotSaved {
    /// Returns whether saving is retried `since` so long after the end of the session. A store that does not respond is
    /// waited for, because its content is whole when it is back; one that fails may fail forever.
    pub(crate) fn is_retried(&self, since: Duration) -> bool {
        match self {
            Self::Storing(StoreVersionError::Blob(BlobError::Unavailable(_))) => true,
            Self::Storing(_) => since < SAVE_RETRY_TIMEOUT,
            Self::Machine(_) | Self::NodeLost => false,
        }
    }
}

impl From<StoreVersionError> for NotSaved {
    fn from(error: StoreVersionError) -> Self {
        match error {
            StoreVersionError::Blob(BlobError::Content(error)) => Self::Machine(error),
            other => Self::Storing(other),
        }
    }
}

/// The dependencies of [`SessionProfiles`].
#[derive(Clone)]
pub struct ProfileDeps {
    /// The stored profiles and the bytes of their versions.
    pub stored: ProfileVersions,
    /// Captures and loads user data. It bounds the duration and the size.
    pub machine: Arc<dyn ProfileMachine>,
    /// Receives the results of saving.
    pub reports: Arc<dyn ProfileReports>,
    /// Wakes the filling of pools whose profile changed.
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
    /// Creates the profiles of sessions and pools.
    #[must_use]
    pub fn new(deps: ProfileDeps) -> Self {
        Self { deps: Some(deps), busy: Busy::default() }
    }

    /// Creates the instance for an installation without profiles.
    #[must_use]
    pub fn none() -> Self {
        Self { deps: None, busy: Busy::default() }
    }

    /// Returns the profile that a request refers to.
    ///
    /// # Errors
    /// `reference_not_found` if the profile does not exist; `insufficient_scope`; the error of the store.
    pub async fn resolve<E: From<InvalidInput> + From<StoreError>>(
        &self,
        scope: &Scope,
        which: &Reference,
    ) -> Result<Profile, E> {
        let which = match (&which.id, &which.name) {
            (Some(id), _) => id.parse().ok().map(IdOrName::Id),
            // Names have at most 255 characters, and the store cannot search for NUL.
            (None, Some(name)) if name.chars().nth(255).is_some() || name.contains('\0') => None,
            (None, Some(name)) => Some(IdOrName::Name(name.clone())),
            (None, None) => None,
        };
        let found = match (&self.deps, which) {
            (Some(deps), Some(which)) => deps.stored.rows().find(scope, &which).await?,
            _ => None,
        };
        let missing = || InvalidValue::new(FieldCode::ReferenceNotFound, "there is no such profile");
        let found = found.ok_or_else(missing).and_then(|profile| {
            scope.allow(Verb::Use, scope.target(Kind::Profiles, profile.id.ulid())).map(|()| profile)
        });
        found.map_err(|bad| InvalidInput::of("profile", bad).into())
    }

    /// Returns the profile that a browser of a pool starts with now: the configured one with its current version.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub(crate) async fn current(&self, request: Option<LoadedProfile>) -> Result<Option<LoadedProfile>, StoreError> {
        let (Some(deps), Some(request)) = (&self.deps, request) else { return Ok(request) };
        let found = deps.stored.rows().living(request.id).await?;
        Ok(Some(LoadedProfile { version: found.and_then(|profile| profile.version), ..request }))
    }

    /// Returns exclusive access to the profile of a browser; `None` if another task has it.
    pub(crate) fn alone(&self, browser: BrowserId) -> Option<ExclusiveSave> {
        let first = self.busy.browsers().insert(browser);
        first.then(|| ExclusiveSave { busy: self.busy.clone(), browser })
    }

    /// Loads a profile into a running browser.
    ///
    /// # Errors
    /// See [`ProfileMachine::load`].
    pub(crate) async fn load(&self, browser: BrowserId, profile: &LoadedProfile) -> Result<(), OperationError> {
        let (Some(deps), Some(version)) = (&self.deps, profile.version) else { return Ok(()) };
        let unusable = |error: OperationError| {
            OperationError::from(match error {
                OperationError::Unavailable(why) => EngineError::Unavailable(why),
                other => EngineError::Profile(other.to_string()),
            })
        };
        let archive = deps.stored.open(profile.id, version).await.map_err(|error| unusable(unreadable(&error)))?;
        deps.machine.load(browser, archive.ok_or_else(|| unusable(not_stored()))?).await
    }

    /// Stores the time at which a browser was started with the profile.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub(crate) async fn used(&self, id: ProfileId, at: time::OffsetDateTime) -> Result<(), StoreError> {
        match &self.deps {
            Some(deps) => deps.stored.rows().used(id, at).await,
            None => Ok(()),
        }
    }

    /// Saves the user data of the session's browser as a new version, completely or not at all. It becomes the current
    /// version, even if another session saved in the meantime.
    ///
    /// # Errors
    /// See [`NotSaved`]; no version is stored then. Bytes without a row are cleaned up later.
    pub(crate) async fn save(&self, session: &Session, browser: BrowserId) -> Result<(), NotSaved> {
        let (Some(deps), Some(profile)) = (&self.deps, session.shape.profile) else { return Ok(()) };
        if deps.stored.rows().living(profile.id).await.map_err(StoreVersionError::from)?.is_none() {
            return Ok(());
        }
        let content = deps.machine.capture(browser, profile).await?;
        let id = ProfileVersionId::mint(deps.ids.as_ref());
        let version = deps.stored.put(id, (session.id, profile), content).await?;
        // The bytes stay after an error, because the row may have been stored.
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
