//! One step of a login: the page is read, understood and acted on.

use std::time::Duration;

use super::failure::{not_allowed, refused};
use super::question::AskingPage;
use super::session::ended;
use super::{FlowRunner, Next, Outcome, PageEvent, PagePhase};
use crate::auth_connection::{
    AuthConnection, Flow, FlowError, FlowEvent, FlowFailure, FlowRequirement, RequestedChoice,
};
use crate::ids::BrowserId;
use crate::login_page::{
    Act, External, Known, LoginPageError, ReadCondition, Reading, Step, Understanding, understand,
};
use crate::store_error::StoreError;

/// The text of the external action for a captcha.
pub(super) const CAPTCHA: &str =
    "The site shows a captcha. Solve it in the live view of the browser; the login goes on by itself.";
/// The maximum number of actions of a login.
pub(super) const MAX_ACTS: u32 = 40;
/// The maximum number of unproductive readings, or of failed actions, in a row.
pub(super) const MAX_UNPRODUCTIVE: u32 = 6;
/// The timeout for a page to change after an action.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for a page to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(8);
/// The timeout for a page to settle while the flow waits for a person.
const WATCH_TIMEOUT: Duration = Duration::from_millis(300);

impl FlowRunner {
    pub(super) async fn log_in(
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
        if !flow.is_awaiting() {
            phase.apply(PageEvent::Submitted);
            self.set_live_view_input(flow, phase, false);
        }
        match self.read_and_act(connection, flow, phase, browser).await {
            Ok(outcome) => Ok(outcome),
            Err(error) => Ok(self.page_failed(browser, flow, phase, error).await),
        }
    }

    async fn read_and_act(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        phase: &mut PagePhase,
        browser: BrowserId,
    ) -> Result<Outcome, LoginPageError> {
        if matches!(phase, PagePhase::Unopened { .. }) {
            if Self::is_at_beginning(flow) {
                self.deps.pages.open(browser, &connection.start_url()).await?;
                phase.apply(PageEvent::Opened);
            } else {
                phase.apply(PageEvent::TakenOver);
            }
        }
        let reading = self.read(browser, flow, phase).await?;
        let sso_provider = connection.credential.as_ref().and_then(|credential| credential.sso_provider.clone());
        let known = Known { progress: flow.progress, sso_provider };
        let understood = understand(&reading, &known, &connection.hosts());
        if flow.is_awaiting() {
            phase.apply(PageEvent::WaitBegan);
            return self.watch(flow, phase, browser, (&reading, understood)).await;
        }
        self.act_on(connection, flow, phase, (browser, reading, understood)).await
    }

    /// Reads the page; after an action, waits until the page has changed.
    pub(super) async fn read(
        &self,
        browser: BrowserId,
        flow: &Flow,
        phase: &mut PagePhase,
    ) -> Result<Reading, LoginPageError> {
        let differs_from = phase.take_stale_mark();
        let within = match &differs_from {
            Some(_) => CHANGE_TIMEOUT,
            None if flow.is_awaiting() => WATCH_TIMEOUT,
            None => SETTLE_TIMEOUT,
        };
        self.deps.pages.read(browser, ReadCondition { differs_from, within }).await
    }

    async fn act_on(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        phase: &mut PagePhase,
        (browser, reading, understood): (BrowserId, Reading, Understanding),
    ) -> Result<Outcome, LoginPageError> {
        match understood {
            Understanding::LoggedIn { url } => Ok(self.changed(flow, FlowEvent::LoggedIn(url))),
            Understanding::NotAllowed { host } => Ok(not_allowed(&host).into()),
            Understanding::Refused(refusal) => Ok(refused(&refusal)),
            Understanding::Captcha { kind } => Ok(self.captcha(flow, &kind)),
            Understanding::External(external) => Ok(self.external_action(flow, &external)),
            Understanding::Step(step) => self.take_step(flow, phase, (browser, reading), step).await,
            Understanding::Fields(question) | Understanding::Choices(question) => {
                self.answer(connection, flow, phase, AskingPage { browser, reading, question }).await
            }
            Understanding::Busy | Understanding::NotUnderstood => {
                // A settled page that is not understood does not change by itself.
                let at_rest = reading.settled && matches!(understood, Understanding::NotUnderstood);
                let weight = if at_rest { 2 } else { 1 };
                phase.apply(PageEvent::NotUnderstood { weight, mark: reading.mark });
                if phase.unproductive() < MAX_UNPRODUCTIVE {
                    return Ok(Outcome::Unchanged(Next::Step));
                }
                Ok(self.not_understood(browser, flow, &reading.url).await)
            }
        }
    }

    pub(super) fn changed(&self, flow: &Flow, event: FlowEvent) -> Outcome {
        match flow.on(event, self.now()) {
            Ok(next) => Outcome::Changed(Box::new(next)),
            // The flow changed meanwhile; the next step reads it again.
            Err(_) => Outcome::Unchanged(Next::Step),
        }
    }

    /// Takes a step that needs no person, as closing a banner or following a link to the login.
    async fn take_step(
        &self,
        flow: &Flow,
        phase: &mut PagePhase,
        (browser, reading): (BrowserId, Reading),
        step: Step,
    ) -> Result<Outcome, LoginPageError> {
        if flow.acts >= MAX_ACTS {
            return Ok(self.not_understood(browser, flow, &reading.url).await);
        }
        self.act(browser, phase, step.acts).await?;
        phase.apply(PageEvent::Acted { mark: reading.mark });
        Ok(self.acted(flow))
    }

    pub(super) fn acted(&self, flow: &Flow) -> Outcome {
        Outcome::Changed(Box::new(Flow { acts: flow.acts + 1, updated_at: self.now(), ..flow.clone() }))
    }

    /// Acts on the page, and counts failures.
    pub(super) async fn act(
        &self,
        browser: BrowserId,
        phase: &mut PagePhase,
        acts: Vec<Act>,
    ) -> Result<(), LoginPageError> {
        let done = self.deps.pages.act(browser, acts).await;
        if done.is_err() {
            phase.apply(PageEvent::ActionFailed);
        }
        done
    }

    pub(super) fn captcha(&self, flow: &Flow, kind: &str) -> Outcome {
        if flow.unattended {
            return FlowFailure::new(FlowError::Captcha, format!("a captcha stands in the way ({kind})")).into();
        }
        self.wait_for_external_action(flow, CAPTCHA.to_owned(), Vec::new())
    }

    pub(super) fn external_action(&self, flow: &Flow, external: &External) -> Outcome {
        if flow.unattended {
            let message = format!("the site waits for a step elsewhere: {}", external.message);
            return FlowFailure::new(FlowError::CredentialMissing, message).into();
        }
        let choices = external.choices.iter().map(RequestedChoice::from).collect();
        self.wait_for_external_action(flow, external.message.clone(), choices)
    }

    fn wait_for_external_action(&self, flow: &Flow, message: String, choices: Vec<RequestedChoice>) -> Outcome {
        let mut flow = flow.clone();
        if !flow.needs.contains(&FlowRequirement::External) {
            flow.needs.push(FlowRequirement::External);
        }
        self.changed(&flow, FlowEvent::Elsewhere { message, choices })
    }

    /// Returns whether the login page must be opened, because no runner has acted on it yet.
    fn is_at_beginning(flow: &Flow) -> bool {
        flow.acts == 0 && !flow.progress.any()
    }
}
