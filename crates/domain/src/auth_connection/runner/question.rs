//! Pages that ask for values or a choice. They are answered with submitted or stored values, or presented to a person.

use time::{Duration, OffsetDateTime};

use super::answers::{self, Answer, StoredValues};
use super::failure::refused;
use super::login::{MAX_ACTS, MAX_UNPRODUCTIVE};
use super::secrets::other_site;
use super::{FlowRunner, Next, Outcome, PageEvent, PagePhase};
use crate::auth_connection::{
    AuthConnection, Flow, FlowError, FlowEvent, FlowFailure, FlowStep, RequestedChoice, RequestedField,
};
use crate::ids::BrowserId;
use crate::login_page::{Field, LoginPageError, PageQuestion, Reading, RefusalKind};

/// The number of refused answers at which a flow fails.
const MAX_REFUSALS: u32 = 5;
/// The timeout for a site to react to an answer.
const ANSWER_TIMEOUT: Duration = Duration::seconds(60);

/// A page that asks for something.
pub(super) struct AskingPage {
    pub(super) browser: BrowserId,
    pub(super) reading: Reading,
    pub(super) question: PageQuestion,
}

impl FlowRunner {
    /// Answers the page, or asks the person.
    pub(super) async fn answer(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        phase: &mut PagePhase,
        page: AskingPage,
    ) -> Result<Outcome, LoginPageError> {
        let mut flow = flow.clone();
        let loading_since = self.loading_since(&flow, phase, &page);
        if let Some(since) = loading_since
            && flow.submission.is_none()
            && self.now() < since + ANSWER_TIMEOUT
        {
            phase.apply(PageEvent::Loading { mark: page.reading.mark, since });
            return Ok(Outcome::Unchanged(Next::Step));
        }
        let answered = matches!(phase, PagePhase::Answered { .. });
        phase.apply(PageEvent::QuestionShown { loading_since });
        if let Some(refusal) = &page.question.refusal {
            flow.refusals += u32::from(answered);
            flow.website_error = Some(refusal.website_error.clone());
            if matches!(refusal.kind, RefusalKind::Locked) || flow.refusals >= MAX_REFUSALS {
                return Ok(refused(refusal));
            }
        }
        if flow.acts >= MAX_ACTS {
            return Ok(self.not_understood(page.browser, &flow, &page.reading.url).await);
        }
        let answer = match self.find_answer(connection, &flow, &page.question).await {
            Ok(answer) => answer,
            Err(failure) => return Ok(failure.into()),
        };
        if let Some(kind) = &page.question.captcha
            && (answer.is_some() || flow.unattended)
        {
            return Ok(self.captcha(&flow, kind));
        }
        match answer {
            Some(answer) => self.send(flow, phase, page, answer).await,
            None => Ok(self.ask(&flow, &page.question)),
        }
    }

    /// Returns the time since which the page seems to be loading: it has not settled, shows no new error, and asks only
    /// for values that were sent.
    fn loading_since(&self, flow: &Flow, phase: &PagePhase, page: &AskingPage) -> Option<OffsetDateTime> {
        let AskingPage { reading, question, .. } = page;
        let sent = |field: &Field| was_sent(flow, field);
        let error = question.refusal.as_ref().map(|refusal| refusal.website_error.as_str());
        let new_error = error.is_some() && error != phase.previous_refusal();
        let loading = !reading.settled && !new_error && !question.fields.is_empty() && question.fields.iter().all(sent);
        loading.then(|| phase.loading_since().unwrap_or_else(|| self.now()))
    }

    /// Returns the answer from the submission, if the page still asks for its values; else from the stored values.
    async fn find_answer(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        question: &PageQuestion,
    ) -> Result<Option<Answer>, FlowFailure> {
        let submission = self.submission(flow)?;
        if let Some(answer) = submission.and_then(|submission| answers::of_person(question, &submission)) {
            return Ok(Some(answer));
        }
        let stored = self.known(connection, flow).await?;
        let before = connection.needs.as_deref().unwrap_or_default();
        if let Some(answer) = answers::choice(question, &stored, flow, before) {
            return Ok(Some(answer));
        }
        match answers::of_store(question, &stored, flow, self.now()) {
            StoredValues::Answer(answer) => Ok(Some(answer)),
            StoredValues::Nothing => Ok(None),
            StoredValues::OtherSite(origin) => Err(other_site(connection, &stored, &origin)),
        }
    }

    /// Fills in the page and sends it.
    async fn send(
        &self,
        flow: Flow,
        phase: &mut PagePhase,
        page: AskingPage,
        answer: Answer,
    ) -> Result<Outcome, LoginPageError> {
        if flow.step == FlowStep::Discovering {
            // The step is stored first, because filling in takes a while.
            return Ok(self.changed(&flow, FlowEvent::Filling));
        }
        if let Err(error) = self.act(page.browser, phase, answer.acts).await {
            return self.not_accepted(flow, phase, page, error).await;
        }
        let refusal = page.question.refusal.map(|refusal| refusal.website_error);
        phase.apply(PageEvent::Sent { mark: page.reading.mark, refusal, at: self.now() });
        let entered = match self.seal_entered(&flow, answer.entered) {
            Ok(entered) => entered,
            Err(failure) => return Ok(failure.into()),
        };
        let mut progress = flow.progress.sent(&answer.fields);
        progress.choice |= answer.chooses;
        let mut needs = flow.needs.clone();
        needs.extend(answer.needs);
        needs.sort();
        needs.dedup();
        Ok(Outcome::Changed(Box::new(Flow {
            submission: None,
            entered,
            needs,
            progress,
            acts: flow.acts + 1,
            website_error: None,
            fields: Vec::new(),
            choices: Vec::new(),
            updated_at: self.now(),
            ..flow
        })))
    }

    /// Returns the error, so that the answer is tried again; after too many failures asks the person for another
    /// answer.
    async fn not_accepted(
        &self,
        mut flow: Flow,
        phase: &mut PagePhase,
        page: AskingPage,
        error: LoginPageError,
    ) -> Result<Outcome, LoginPageError> {
        let of_page = matches!(error, LoginPageError::NotUsable(_) | LoginPageError::Stale(_));
        if !of_page || flow.unattended || phase.failed_actions() < MAX_UNPRODUCTIVE {
            return Err(error);
        }
        flow.refusals += 1;
        if flow.refusals >= MAX_REFUSALS {
            return Ok(self.not_understood(page.browser, &flow, &page.reading.url).await);
        }
        // The next answer of the person gets the same number of attempts.
        phase.apply(PageEvent::WaitBegan);
        flow.website_error = Some(format!("The page did not take this: {error}."));
        Ok(self.ask(&flow, &page.question))
    }

    /// Asks the person, or fails if the flow is unattended.
    fn ask(&self, flow: &Flow, question: &PageQuestion) -> Outcome {
        if flow.unattended {
            return unanswerable(flow, question);
        }
        let rejected = |field: &Field| is_refused(flow, question) && was_sent(flow, field);
        let fields = question.fields.iter().map(|field| RequestedField::of(field, rejected(field))).collect();
        let choices = question.choices.iter().map(RequestedChoice::from).collect();
        self.changed(flow, FlowEvent::InputRequested { fields, choices })
    }
}

/// Returns whether the flow has sent a value for the field.
fn was_sent(flow: &Flow, field: &Field) -> bool {
    flow.needs.contains(&answers::need(field))
}

/// Returns whether the page refused what was sent: it says so, or it asks only for values that were sent.
fn is_refused(flow: &Flow, question: &PageQuestion) -> bool {
    let asks_again = !question.fields.is_empty() && question.fields.iter().all(|field| was_sent(flow, field));
    asks_again || flow.website_error.is_some()
}

/// Returns the failure of an unattended flow that cannot answer the page.
fn unanswerable(flow: &Flow, question: &PageQuestion) -> Outcome {
    if let Some(error) = &flow.website_error {
        let message = format!("the site rejected the stored value: {error}");
        let failure = FlowFailure::new(FlowError::CredentialsRejected, message);
        return Outcome::Failed { failure, website_error: flow.website_error.clone() };
    }
    if is_refused(flow, question) {
        let message = "the site rejected the stored value and asks for it again";
        return FlowFailure::new(FlowError::CredentialsRejected, message).into();
    }
    let names: Vec<&str> = question.fields.iter().map(|field| field.reference.as_str()).collect();
    let names = if names.is_empty() { "a choice".to_owned() } else { names.join(", ") };
    let message = format!("the site asks for {names}, which is not stored");
    FlowFailure::new(FlowError::CredentialMissing, message).into()
}
