//! A look whether a login still holds.

use super::round::not_allowed;
use super::session::ended;
use super::{FlowRunner, Memory, Next, Outcome};
use crate::auth_connection::{
    AuthConnection, ConnectionStatus, Flow, FlowEnd, FlowError, FlowEvent, FlowFailure, FlowStatus,
};
use crate::login_page::{Known, LoginPageError, StepKind, Understanding, understand};
use crate::store_error::StoreError;

/// How often a look does what needs nobody.
const MAX_ACTS: u32 = 6;
/// How often in a row a reading may come to nothing.
const MAX_FRUITLESS: u32 = 4;

impl FlowRunner {
    pub(super) async fn look(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        memory: &mut Memory,
    ) -> Result<Outcome, StoreError> {
        let browser = match self.session(flow).await? {
            Ok(session) => session.browser,
            Err(failure) => return Ok(failure.into()),
        };
        let Some(browser) = browser else { return Ok(ended().into()) };
        let read = async {
            if !memory.opened {
                self.deps.pages.open(browser, &connection.start_url()).await?;
                memory.opened = true;
            }
            let reading = self.read(browser, flow, memory).await?;
            let understood = understand(&reading, &Known::default(), &connection.hosts());
            if let Understanding::Step(step) = &understood
                && step.kind != StepKind::OpenLogin
                && flow.acts < MAX_ACTS
            {
                self.act(browser, memory, step.acts.clone()).await?;
                memory.acted_on = Some(reading.mark.clone());
            }
            Ok::<_, LoginPageError>((reading, understood))
        };
        let (reading, understood) = match read.await {
            Ok(read) => read,
            Err(error) => return Ok(self.failed(browser, flow, memory, error).await),
        };
        let unknown = |code, message: &str| Ok(Outcome::from(FlowFailure::new(code, message)));
        match understood {
            Understanding::LoggedIn { .. } => self.found(connection, flow, true).await,
            // A page for anybody that offers to log in is as good as one that asks for it.
            Understanding::Fields(_) | Understanding::Choices(_) => self.found(connection, flow, false).await,
            Understanding::Step(step) if step.kind == StepKind::OpenLogin => self.found(connection, flow, false).await,
            Understanding::Step(_) if flow.acts < MAX_ACTS => {
                Ok(Outcome::Moves(Box::new(Flow { acts: flow.acts + 1, updated_at: self.now(), ..flow.clone() })))
            }
            Understanding::Busy | Understanding::NotUnderstood if memory.fruitless < MAX_FRUITLESS => {
                memory.fruitless += 1;
                memory.acted_on = Some(reading.mark);
                Ok(Outcome::Goes(Next::Step))
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
                unknown(FlowError::PageNotUnderstood, "it could not be told whether the login holds")
            }
        }
    }

    /// It was found out whether the login holds.
    async fn found(&self, connection: &AuthConnection, flow: &Flow, holds: bool) -> Result<Outcome, StoreError> {
        let now = self.now();
        // What follows on a look is what is wished by now.
        let Some(connection) = self.connections.deps().connections.any(connection.id).await? else {
            return Ok(Outcome::Goes(Next::Step));
        };
        // A login that went on meanwhile knows better: what was looked at is the profile of before.
        let newer = |login: &Flow| login.status == FlowStatus::InProgress || login.updated_at > flow.created_at;
        let overtaken = connection.flow.as_deref().is_some_and(newer);
        let reauth =
            !holds && !overtaken && connection.settings.auto_reauth && self.connections.reauth(&connection).await?.can;
        // Begun with the end of the look, in one: nobody would begin it later.
        let next = if reauth { self.draft_reauth(&connection) } else { None };
        let after = match (holds, next.is_some()) {
            (true, _) => ConnectionStatus::Authenticated,
            // Until the login by itself has ended.
            (false, true) => connection.status,
            (false, false) => ConnectionStatus::NeedsAuth,
        };
        let seen = if holds { ConnectionStatus::Authenticated } else { ConnectionStatus::NeedsAuth };
        let over = flow.on(FlowEvent::LoggedIn(connection.start_url()), now);
        let Some(over) = over.ok().and_then(|flow| flow.on(FlowEvent::Completed, now).ok()) else {
            return Ok(Outcome::Goes(Next::Step));
        };
        let over = Flow { found: Some((connection.status, seen)), ..over };
        let end = FlowEnd { status: (!overtaken).then_some(after), checked_at: Some(now), next, ..FlowEnd::default() };
        let _ = self.connections.deps().connections.end(&over, &end).await?;
        Ok(Outcome::Goes(Next::Step))
    }
}
