//! Creates and ends the session of a flow.

use super::{FlowRunner, Next, Outcome, PageEvent, PagePhase};
use crate::access::Scope;
use crate::auth_connection::{AuthConnection, Flow, FlowError, FlowFailure};
use crate::browser::BrowserPolicy;
use crate::ids::BrowserId;
use crate::login_page::{Act, LoginPageError, Reading};
use crate::permission::Permissions;
use crate::profile::ProfileRequest;
use crate::reference::Reference;
use crate::session::{CreateSessionError, EndSessionError, Session, SessionEvent, SessionRequest, SessionState};
use crate::store_error::StoreError;

impl FlowRunner {
    /// Creates the session of a flow, or finds the existing one.
    pub(super) async fn begin(&self, connection: &AuthConnection, flow: &Flow) -> Result<Outcome, StoreError> {
        if !flow.open {
            // Stored before the session is created, so that every session is found again and ended.
            return Ok(Outcome::Changed(Box::new(Flow { open: true, ..flow.clone() })));
        }
        let sessions = &self.connections.deps().sessions;
        let made = match sessions.find(flow.session).await? {
            Some(found) => found,
            None => match self.make_session(connection, flow).await? {
                Ok(made) => made,
                Err(failure) => return Ok(failure.into()),
            },
        };
        match made.state {
            SessionState::Active => {}
            // This node created the session before a restart, and is about to end it.
            SessionState::Starting => return Ok(Outcome::Unchanged(Next::Wait(self.now() + Self::WATCH_INTERVAL))),
            SessionState::Ended(_) => return Ok(ended().into()),
        }
        let replay = if flow.record_session { self.record(&made).await } else { None };
        Ok(Outcome::Changed(Box::new(Flow { session_made: true, replay, updated_at: self.now(), ..flow.clone() })))
    }

    async fn make_session(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
    ) -> Result<Result<Session, FlowFailure>, StoreError> {
        let project = self.deps.projects.find(connection.organization, connection.project).await?;
        let Some(project) = project else {
            return Ok(Err(FlowFailure::new(FlowError::Internal, "the project was deleted")));
        };
        let scope = Scope { project, unscoped: true, organization_wide: false, permissions: Permissions::ALL };
        let profile = Reference { id: Some(connection.profile.to_string()), name: None };
        let request = SessionRequest {
            // A person may have to see the browser.
            headless: Some(flow.unattended),
            timeout_seconds: Some((Flow::LIFE + Flow::GRACE).whole_seconds()),
            // The profile is saved only after it is logged in.
            profile: Some(ProfileRequest { which: profile, save_changes: false }),
            proxy: flow.proxy.map(|id| id.to_string()),
            // A person in the live view of the login must not reach the rest of the profile.
            browser_policy: Some(BrowserPolicy::of_logins().as_map().clone()),
            ..SessionRequest::default()
        };
        match self.connections.deps().sessions.create_as(flow.session, &scope, request).await {
            Ok(session) => Ok(Ok(session)),
            Err(CreateSessionError::Store(error)) => Err(error),
            Err(CreateSessionError::Limit(limit)) => {
                Ok(Err(FlowFailure::new(FlowError::Internal, format!("no browser could be had: {limit}"))))
            }
            Err(error) => Ok(Err(FlowFailure::new(FlowError::Internal, error.to_string()))),
        }
    }

    /// Records the session. A login does not fail if that is not possible.
    async fn record(&self, session: &Session) -> Option<crate::ids::ReplayId> {
        let max_duration_in_seconds = Some(Flow::LIFE.whole_seconds());
        self.deps.replays.start(session, None, max_duration_in_seconds, false).await.ok().map(|replay| replay.id)
    }

    /// Returns the session of a running flow; `Err`: it has ended.
    pub(super) async fn session(&self, flow: &Flow) -> Result<Result<Session, FlowFailure>, StoreError> {
        let found = self.connections.deps().sessions.find(flow.session).await?;
        Ok(found.filter(Session::is_active).ok_or_else(ended))
    }

    /// Ends the session of a flow that has ended.
    pub(super) async fn close(&self, flow: &Flow) -> Result<Next, StoreError> {
        if flow.open {
            self.end_session(flow).await?;
        }
        self.connections.deps().connections.closed(flow.id).await?;
        Ok(Next::Done)
    }

    pub(super) async fn end_session(&self, flow: &Flow) -> Result<(), StoreError> {
        match self.connections.deps().sessions.end(flow.session, SessionEvent::Delete).await {
            Err(EndSessionError::Store(error)) => Err(error),
            // The session does not exist or has ended. A session that never became active is ended when its node
            // starts.
            Ok(_) | Err(EndSessionError::NotFound(_) | EndSessionError::Refused(_)) => Ok(()),
        }
    }

    /// Sets whether the live view accepts input.
    pub(super) fn set_live_view_input(&self, flow: &Flow, phase: &mut PagePhase, accepted: bool) {
        phase.apply(PageEvent::LiveViewInput { accepted });
        self.connections.deps().sessions.activity().let_people_act(flow.session, accepted);
    }

    /// Empties the page's password fields; returns whether all are empty. A field that is not usable shows nothing
    /// either.
    pub(super) async fn empty_passwords(&self, browser: BrowserId, reading: &Reading) -> Result<bool, LoginPageError> {
        for input in reading.inputs.iter().filter(|input| input.kind == "password" && input.filled) {
            let origin = reading.frames.get(input.frame).map(|frame| frame.origin.clone()).unwrap_or_default();
            let empty = Act::Fill { into: input.handle.clone(), text: String::new().into(), origin };
            match self.deps.pages.act(browser, vec![empty]).await {
                Ok(()) | Err(LoginPageError::NotUsable(_)) => {}
                // The page must be read again first.
                Err(LoginPageError::Stale(_) | LoginPageError::WrongOrigin { .. }) => return Ok(false),
                Err(other) => return Err(other),
            }
        }
        Ok(true)
    }
}

/// Returns the failure of a flow whose session has ended.
pub(super) fn ended() -> FlowFailure {
    FlowFailure::new(FlowError::BrowserEnded, "the browser of the login has ended")
}
