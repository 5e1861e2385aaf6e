//! A health check: it finds out whether the login of a connection still holds.

use super::failure::not_allowed;
use super::session::ended;
use super::{FlowRunner, Next, Outcome, PageEvent, PagePhase};
use crate::auth_connection::{
    AuthConnection, ConnectionStatus, Flow, FlowEnd, FlowError, FlowEvent, FlowFailure, FlowStatus,
};
use crate::ids::BrowserId;
use crate::login_page::{Known, LoginPageError, Reading, StepKind, Understanding, understand};
use crate::store_error::StoreError;

/// The maximum number of actions of a health check.
const MAX_ACTS: u32 = 6;
/// The maximum number of unproductive readings in a row.
const MAX_UNPRODUCTIVE: u32 = 4;

impl FlowRunner {
    pub(super) async fn check_health(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        phase: &mut PagePhase,
    ) -> Result<Outcome, StoreError> {
        let browser = match self.session(flow).await? {
            Ok(session) => session.browser,
            Err(failure) => return Ok(failure.into()),
        };
        let Some(browser) = browser else { return Ok(ended().into()) };
        let (reading, understood) = match self.read_without_login(connection, flow, phase, browser).await {
            Ok(read) => read,
            Err(error) => return Ok(self.page_failed(browser, flow, phase, error).await),
        };
        let unknown = |code, message: &str| Ok(Outcome::from(FlowFailure::new(code, message)));
        match understood {
            Understanding::LoggedIn { .. } => self.checked(connection, flow, true).await,
            // A public page that offers a login counts as a page that asks for it.
            Understanding::Fields(_) | Understanding::Choices(_) => self.checked(connection, flow, false).await,
            Understanding::Step(step) if step.kind == StepKind::OpenLogin => {
                self.checked(connection, flow, false).await
            }
            Understanding::Step(_) if flow.acts < MAX_ACTS => Ok(self.acted(flow)),
            Understanding::Busy | Understanding::NotUnderstood if phase.unproductive() < MAX_UNPRODUCTIVE => {
                phase.apply(PageEvent::NotUnderstood { weight: 1, mark: reading.mark });
                Ok(Outcome::Unchanged(Next::Step))
            }
            Understanding::NotAllowed { host } => Ok(not_allowed(&host).into()),
            Understanding::Captcha { .. } => unknown(FlowError::Captcha, "a captcha stands in the way of looking"),
            Understanding::Refused(refusal) => {
                unknown(FlowError::NavigationFailed, &format!("the site said: {}", refusal.website_error))
            }
            Understanding::External(_)
            | Understanding::Step(_)
            | Understanding::Busy
            | Understanding::NotUnderstood => {
                unknown(FlowError::PageNotUnderstood, "whether the login is still valid could not be determined")
            }
        }
    }

    /// Reads the page, and takes the step that needs no person, if there is one.
    async fn read_without_login(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        phase: &mut PagePhase,
        browser: BrowserId,
    ) -> Result<(Reading, Understanding), LoginPageError> {
        if matches!(phase, PagePhase::Unopened { .. }) {
            self.deps.pages.open(browser, &connection.start_url()).await?;
            phase.apply(PageEvent::Opened);
        }
        let reading = self.read(browser, flow, phase).await?;
        let understood = understand(&reading, &Known::default(), &connection.hosts());
        if let Understanding::Step(step) = &understood
            && step.kind != StepKind::OpenLogin
            && flow.acts < MAX_ACTS
        {
            self.act(browser, phase, step.acts.clone()).await?;
            phase.apply(PageEvent::Acted { mark: reading.mark.clone() });
        }
        Ok((reading, understood))
    }

    /// Ends the health check with its result.
    async fn checked(&self, connection: &AuthConnection, flow: &Flow, holds: bool) -> Result<Outcome, StoreError> {
        let now = self.now();
        // The present settings decide whether a login follows.
        let Some(connection) = self.connections.deps().connections.any(connection.id).await? else {
            return Ok(Outcome::Unchanged(Next::Step));
        };
        // The result of a login that ran meanwhile is newer: the check loaded an older version of the profile.
        let newer = |login: &Flow| login.status == FlowStatus::InProgress || login.updated_at > flow.created_at;
        let outdated = connection.flow.as_deref().is_some_and(newer);
        let reauth =
            !holds && !outdated && connection.settings.auto_reauth && self.connections.reauth(&connection).await?.can;
        // The next login is stored with the end of the check, so that it is not lost if the node ends between two
        // writes.
        let next = if reauth { self.draft_reauth(&connection) } else { None };
        let after = match (holds, next.is_some()) {
            (true, _) => ConnectionStatus::Authenticated,
            // The status stays until the next login has ended.
            (false, true) => connection.status,
            (false, false) => ConnectionStatus::NeedsAuth,
        };
        let result = if holds { ConnectionStatus::Authenticated } else { ConnectionStatus::NeedsAuth };
        let ended = flow.on(FlowEvent::LoggedIn(connection.start_url()), now);
        let Some(ended) = ended.ok().and_then(|flow| flow.on(FlowEvent::Completed, now).ok()) else {
            return Ok(Outcome::Unchanged(Next::Step));
        };
        let ended = Flow { found: Some((connection.status, result)), ..ended };
        let end = FlowEnd { status: (!outdated).then_some(after), checked_at: Some(now), next, ..FlowEnd::default() };
        let _ = self.connections.deps().connections.end(&ended, &end).await?;
        Ok(Outcome::Unchanged(Next::Step))
    }
}
