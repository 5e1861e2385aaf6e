//! The hand-out of a leased browser, by the node that runs it.

use super::Leases;
use super::uncertain_writes::UncertainWrite;
use crate::browser::EngineError;
use crate::error::UseCaseError;
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::SessionId;
use crate::node::PeerHandOut;
use crate::profile::LoadedProfile;
use crate::session::{Session, SessionEvent, UpdateSessionError, UseSessionError, hand_out};
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// The number of browsers that may fail to load the profile of one acquire. The profile is more likely the cause than
/// the browsers, and each failure costs a warm browser.
const MAX_FAILED_LOADS: u32 = 2;

/// The number of browsers of one acquire into which its profile could not be loaded. Each has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailedLoads(u32);

/// The result of a hand-out. Except for `Done`, the lease has ended.
#[must_use]
pub(super) enum LeaseHandOut {
    /// The caller has the session.
    Done(Box<Session>),
    /// The browser does not answer, or could not load the profile.
    NotAnswering,
    /// The node of the browser cannot be reached from here.
    NodeUnreachable,
}

impl Leases {
    /// Hands out the browser of a new lease: loads the profile, probes the browser and opens the start URL. The probe
    /// comes after the lease, because an earlier answer says nothing about a browser that died since. The owner does
    /// it for a browser of another node.
    ///
    /// # Errors
    /// The profile cannot be loaded, into any browser or into several in turn. The lease has ended then.
    pub(super) async fn hand_out(
        &self,
        session: Session,
        profile: Option<LoadedProfile>,
        failed_loads: &mut FailedLoads,
    ) -> Result<LeaseHandOut, UseCaseError> {
        let handed = if session.node == self.deps.node {
            self.hand_out_here(&session, profile).await?
        } else {
            match Box::pin(self.sessions.peers().hand_out(session.node, session.id, profile)).await {
                Ok(handed) => handed,
                Err(_) => {
                    self.end_unanswered(session.id).await;
                    return Ok(LeaseHandOut::NodeUnreachable);
                }
            }
        };
        match handed {
            PeerHandOut::Done { profile } => {
                let mut session = session;
                session.shape.profile = profile.or(session.shape.profile);
                Ok(LeaseHandOut::Done(Box::new(session)))
            }
            PeerHandOut::NotAnswering => Ok(LeaseHandOut::NotAnswering),
            PeerHandOut::ProfileUnusable(why) => Err(unusable(why)),
            PeerHandOut::ProfileUnavailable(why) => Err(UseCaseError::Unavailable(why)),
            PeerHandOut::ProfileNotLoaded => {
                failed_loads.0 += 1;
                if failed_loads.0 < MAX_FAILED_LOADS {
                    Ok(LeaseHandOut::NotAnswering)
                } else {
                    Err(unusable("no browser of the pool could load it".to_owned()))
                }
            }
        }
    }

    /// Hands out the browser of a lease of this node. A hand-out that fails ends the session.
    pub(super) async fn hand_out_here(
        &self,
        session: &Session,
        profile: Option<LoadedProfile>,
    ) -> Result<PeerHandOut, StoreError> {
        // The session is watched before its caller can use it, so that every connection counts.
        self.sessions.activity().watch(session);
        let Some(profile) = profile else {
            let answers = self.probe_and_open(session).await;
            return Ok(if answers { PeerHandOut::Done { profile: None } } else { PeerHandOut::NotAnswering });
        };
        match Box::pin(self.sessions.load_into_lease(session, profile)).await {
            Ok(session) => {
                let answers = self.probe_and_open(&session).await;
                let profile = session.shape.profile;
                Ok(if answers { PeerHandOut::Done { profile } } else { PeerHandOut::NotAnswering })
            }
            Err(error) => {
                self.start_failed(session.id).await;
                match error {
                    UpdateSessionError::Profile(OperationError::Engine(EngineError::Profile(why))) => {
                        Ok(PeerHandOut::ProfileUnusable(why))
                    }
                    UpdateSessionError::Profile(OperationError::Engine(EngineError::Unavailable(why))) => {
                        Ok(PeerHandOut::ProfileUnavailable(why))
                    }
                    UpdateSessionError::Use(UseSessionError::Store(error)) => Err(error),
                    _ => Ok(PeerHandOut::ProfileNotLoaded),
                }
            }
        }
    }

    /// Returns whether the browser answers and has been handed out. Otherwise the session has ended.
    async fn probe_and_open(&self, session: &Session) -> bool {
        let Some(browser) = session.browser else { return false };
        // Capture begins before the start URL is opened, so that its events are captured too.
        if self.sessions.begin_capture(session).await.is_ok()
            && self.deps.engine.hand_out(browser, hand_out(session)).await.is_ok()
        {
            return true;
        }
        self.start_failed(session.id).await;
        false
    }

    async fn start_failed(&self, session: SessionId) {
        if self.end_session(session, SessionEvent::StartFailed).await.is_err() {
            self.uncertain_write(UncertainWrite::Lease(session));
        }
    }

    /// Ends a lease whose owner does not answer, in the store.
    async fn end_unanswered(&self, session: SessionId) {
        if self.sessions.end_unanswered(session, SessionEvent::StartFailed).await.is_err() {
            self.uncertain_write(UncertainWrite::Lease(session));
        }
    }
}

fn unusable(why: String) -> UseCaseError {
    InvalidInput::of("profile", InvalidValue::new(FieldCode::NotAllowed, why)).into()
}
