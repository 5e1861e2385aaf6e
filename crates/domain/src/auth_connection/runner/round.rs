//! One round of a login: what the page shows, what that means, what is done about it.

use time::Duration;

use super::answers::{self, Answer, StoredValues};
use super::known;
use super::session::ended;
use super::{FlowRunner, Memory, Next, Outcome};
use crate::auth_connection::{
    AuthConnection, Flow, FlowError, FlowEvent, FlowFailure, FlowRequirement, FlowStep, RequestedChoice, RequestedField,
};
use crate::browser::EngineError;
use crate::ids::BrowserId;
use crate::login_page::{
    Act, External, Field, Known, LoginPageError, PageQuestion, ReadCondition, Reading, Refusal, RefusalKind, Step,
    Understanding, understand,
};
use crate::store_error::StoreError;

/// What a person is told of a captcha.
const CAPTCHA: &str =
    "The site shows a captcha. Solve it in the live view of the browser; the login goes on by itself.";
/// How often a person is told that a step elsewhere has become another one: a page may change its words without end.
const MAX_RETOLD: u32 = 50;
/// How often a login acts on pages.
const MAX_ACTS: u32 = 40;
/// How often in a row a reading may come to nothing.
const MAX_FRUITLESS: u32 = 6;
/// How often a site may refuse what it got.
const MAX_REFUSALS: u32 = 5;
/// How often in a row a page that waits may be another one without coming to rest.
const MAX_RESTLESS: u32 = 3;
/// For how long a site may take to answer what was sent.
const SLOWEST: Duration = Duration::seconds(60);
/// For how long a page may take to show something else after it was acted on.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// For how long it may take to come to rest.
const BACKOFF: std::time::Duration = std::time::Duration::from_secs(8);

impl FlowRunner {
    pub(super) async fn round(
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
        if !flow.is_awaiting() {
            self.let_people_act(flow, memory, false);
        }
        let round = async {
            if !memory.opened {
                if Self::to_open(flow) {
                    self.deps.pages.open(browser, &connection.start_url()).await?;
                } else {
                    memory.taken_over = true;
                }
            }
            memory.opened = true;
            let reading = self.read(browser, flow, memory).await?;
            let sso_provider = connection.credential.as_ref().and_then(|credential| credential.sso_provider.clone());
            let known = Known { progress: flow.progress, sso_provider };
            let understood = understand(&reading, &known, &connection.hosts());
            if flow.is_awaiting() {
                if !memory.for_people {
                    // What was typed before is not there for whoever looks at the page now, or presses what shows it.
                    let emptied = self.empty_passwords(browser, &reading).await?;
                    self.let_people_act(flow, memory, emptied);
                }
                return Ok(self.glance(flow, memory, &reading, understood));
            }
            self.answer(connection, flow, memory, (browser, reading, understood)).await
        };
        match round.await {
            Ok(outcome) => Ok(outcome),
            Err(error) => Ok(self.failed(browser, flow, memory, error).await),
        }
    }

    /// What the page shows: after it was acted on, once that has come to something.
    pub(super) async fn read(
        &self,
        browser: BrowserId,
        flow: &Flow,
        memory: &mut Memory,
    ) -> Result<Reading, LoginPageError> {
        let wait = match memory.acted_on.take() {
            Some(mark) => ReadCondition { differs_from: Some(mark), within: TIMEOUT },
            None if flow.is_awaiting() => {
                ReadCondition { differs_from: None, within: std::time::Duration::from_millis(300) }
            }
            None => ReadCondition { differs_from: None, within: BACKOFF },
        };
        self.deps.pages.read(browser, wait).await
    }

    /// The page of a flow that waits: somebody may have gone on in the live view, or elsewhere.
    fn glance(&self, flow: &Flow, memory: &mut Memory, reading: &Reading, understood: Understanding) -> Outcome {
        let wait = Outcome::Goes(Next::Wait((self.now() + Self::GLANCE).min(flow.expires_at)));
        if flow.step == FlowStep::AwaitingExternalAction {
            // Another step elsewhere, or another number to compare: the person must know. Such a page asks its server all the time, and
            // never comes to rest.
            let told = flow.external_action.as_deref();
            match &understood {
                Understanding::External(external) if told != Some(&*external.message) && memory.retold < MAX_RETOLD => {
                    memory.retold += 1;
                    return self.elsewhere(flow, external);
                }
                Understanding::Captcha { kind } if told != Some(CAPTCHA) => return self.captcha(flow, kind),
                _ => {}
            }
        }
        let ids = |asked: &PageQuestion| -> Vec<String> {
            asked
                .fields
                .iter()
                .map(|field| &field.key)
                .chain(asked.choices.iter().map(|choice| &choice.key))
                .cloned()
                .collect()
        };
        let awaited: Vec<String> =
            flow.fields.iter().map(|f| &f.id).chain(flow.choices.iter().map(|c| &c.id)).cloned().collect();
        let now = match &understood {
            Understanding::Fields(asked) | Understanding::Choices(asked) => ids(asked),
            _ => Vec::new(),
        };
        let waits_elsewhere = flow.step == FlowStep::AwaitingExternalAction;
        let same = match &understood {
            Understanding::Fields(asked) | Understanding::Choices(asked) => {
                if waits_elsewhere {
                    asked.captcha.is_some()
                } else {
                    now == awaited
                }
            }
            Understanding::External(_) | Understanding::Captcha { .. } => waits_elsewhere,
            Understanding::Busy | Understanding::NotUnderstood => true,
            Understanding::LoggedIn { .. }
            | Understanding::Refused(_)
            | Understanding::Step(_)
            | Understanding::NotAllowed { .. } => false,
        };
        memory.restless = if same || reading.settled { 0 } else { memory.restless + 1 };
        // A page on its way is another one for a moment; one that never rests, for good.
        if same || (1..MAX_RESTLESS).contains(&memory.restless) {
            return wait;
        }
        *memory = Memory { opened: true, retold: memory.retold, for_people: memory.for_people, ..Memory::default() };
        match flow.on(FlowEvent::MovedOn, self.now()) {
            Ok(mut next) => {
                next.progress.external |= waits_elsewhere;
                // A page that changes without end is given up as one that is acted on without end.
                next.acts += 1;
                // Whoever answered in the live view is needed again. A banner is no answer.
                let by_itself = matches!(understood, Understanding::Step(_) | Understanding::Captcha { .. });
                let answered = !waits_elsewhere && !by_itself && !awaited.iter().any(|id| now.contains(id));
                if answered && !next.needs.contains(&FlowRequirement::External) {
                    next.needs.push(FlowRequirement::External);
                }
                Outcome::Moves(Box::new(next))
            }
            Err(_) => wait,
        }
    }

    async fn answer(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        memory: &mut Memory,
        (browser, reading, understood): (BrowserId, Reading, Understanding),
    ) -> Result<Outcome, LoginPageError> {
        match understood {
            Understanding::LoggedIn { url } => Ok(self.moves(flow, FlowEvent::LoggedIn(url))),
            Understanding::NotAllowed { host } => Ok(not_allowed(&host).into()),
            Understanding::Refused(refusal) => Ok(refused(&refusal)),
            Understanding::Captcha { kind } => Ok(self.captcha(flow, &kind)),
            Understanding::External(external) => Ok(self.elsewhere(flow, &external)),
            Understanding::Step(step) => self.take_step(flow, memory, browser, reading, step).await,
            Understanding::Fields(asked) | Understanding::Choices(asked) => {
                memory.fruitless = 0;
                self.asked(connection, flow, memory, (browser, reading, asked)).await
            }
            Understanding::Busy | Understanding::NotUnderstood => {
                // A page that has come to rest and is a riddle remains one.
                let rests = reading.settled && matches!(understood, Understanding::NotUnderstood);
                memory.fruitless += if rests { 2 } else { 1 };
                if memory.fruitless < MAX_FRUITLESS {
                    memory.acted_on = Some(reading.mark);
                    return Ok(Outcome::Goes(Next::Step));
                }
                Ok(self.not_understood(browser, flow, &reading.url).await)
            }
        }
    }

    pub(super) fn moves(&self, flow: &Flow, event: FlowEvent) -> Outcome {
        match flow.on(event, self.now()) {
            Ok(next) => Outcome::Moves(Box::new(next)),
            // It was moved meanwhile: looked at again.
            Err(_) => Outcome::Goes(Next::Step),
        }
    }

    /// What needs nobody: a banner, a link to the login.
    async fn take_step(
        &self,
        flow: &Flow,
        memory: &mut Memory,
        browser: BrowserId,
        reading: Reading,
        step: Step,
    ) -> Result<Outcome, LoginPageError> {
        if flow.acts >= MAX_ACTS {
            return Ok(self.not_understood(browser, flow, &reading.url).await);
        }
        self.act(browser, memory, step.acts).await?;
        memory.acted_on = Some(reading.mark);
        Ok(Outcome::Moves(Box::new(Flow { acts: flow.acts + 1, updated_at: self.now(), ..flow.clone() })))
    }

    async fn asked(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        memory: &mut Memory,
        (browser, reading, asked): (BrowserId, Reading, PageQuestion),
    ) -> Result<Outcome, LoginPageError> {
        let mut flow = flow.clone();
        if self.is_on_its_way(&flow, memory, &reading, &asked) {
            memory.acted_on = Some(reading.mark);
            return Ok(Outcome::Goes(Next::Step));
        }
        let sent = std::mem::take(&mut memory.answered);
        if let Some(refusal) = &asked.refusal {
            flow.refusals += u32::from(sent);
            flow.website_error = Some(refusal.website_error.clone());
            if matches!(refusal.kind, RefusalKind::Locked) || flow.refusals >= MAX_REFUSALS {
                return Ok(refused(refusal));
            }
        }
        if flow.acts >= MAX_ACTS {
            return Ok(self.not_understood(browser, &flow, &reading.url).await);
        }
        let given = match self.submission(&flow) {
            Ok(given) => given,
            Err(failure) => return Ok(failure.into()),
        };
        let of_person = given.as_ref().and_then(|given| answers::of_person(&asked, given));
        let answer = match of_person {
            Some(answer) => Some(answer),
            None => match self.of_store(connection, &flow, &asked).await {
                Ok(answer) => answer,
                Err(failure) => return Ok(failure.into()),
            },
        };
        if let Some(kind) = &asked.captcha
            && (answer.is_some() || flow.unattended)
        {
            return Ok(self.captcha(&flow, kind));
        }
        match answer {
            Some(answer) => self.send(flow, memory, (browser, reading, asked), answer).await,
            None => Ok(self.ask(&flow, &asked)),
        }
    }

    /// What is stored for what the page asks for, or the choice that is plain from it.
    async fn of_store(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        asked: &PageQuestion,
    ) -> Result<Option<Answer>, FlowFailure> {
        let stored = self.known(connection, flow).await?;
        let before = connection.needs.as_deref().unwrap_or_default();
        if let Some(answer) = answers::choice(asked, &stored, flow, before) {
            return Ok(Some(answer));
        }
        match answers::of_store(asked, &stored, flow, self.now()) {
            StoredValues::Answer(answer) => Ok(Some(answer)),
            StoredValues::Nothing => Ok(None),
            StoredValues::OtherSite(origin) => Err(known::other_site(connection, &stored, &origin)),
        }
    }

    /// Whether a slow site may still answer: it has not come to rest, says nothing new, and asks for no more than what was sent.
    fn is_on_its_way(&self, flow: &Flow, memory: &mut Memory, reading: &Reading, asked: &PageQuestion) -> bool {
        let sent = |field: &Field| flow.needs.contains(&answers::need(field));
        let said = asked.refusal.as_ref().map(|refusal| &refusal.website_error);
        let news = said.is_some() && said != memory.refused_before.as_ref();
        if reading.settled || news || asked.fields.is_empty() || !asked.fields.iter().all(sent) {
            memory.resent_since = None;
            return false;
        }
        let since = *memory.resent_since.get_or_insert(self.now());
        flow.submission.is_none() && self.now() < since + SLOWEST
    }

    /// Acts on the page, and counts how often that fails.
    pub(super) async fn act(
        &self,
        browser: BrowserId,
        memory: &mut Memory,
        acts: Vec<Act>,
    ) -> Result<(), LoginPageError> {
        let done = self.deps.pages.act(browser, acts).await;
        memory.taken_over = false;
        memory.untaken = if done.is_ok() { 0 } else { memory.untaken + 1 };
        done
    }

    /// The page does not take an answer: it is tried again, and then whoever is there is asked for another one.
    async fn not_taken(
        &self,
        mut flow: Flow,
        memory: &mut Memory,
        (browser, reading, asked): (BrowserId, Reading, PageQuestion),
        error: LoginPageError,
    ) -> Result<Outcome, LoginPageError> {
        let of_page = matches!(error, LoginPageError::NotUsable(_) | LoginPageError::Stale(_));
        if !of_page || flow.unattended || memory.untaken < MAX_FRUITLESS {
            return Err(error);
        }
        memory.untaken = 0;
        flow.refusals += 1;
        if flow.refusals >= MAX_REFUSALS {
            return Ok(self.not_understood(browser, &flow, &reading.url).await);
        }
        flow.website_error = Some(format!("The page did not take this: {error}."));
        Ok(self.ask(&flow, &asked))
    }

    /// Fills in and sends.
    async fn send(
        &self,
        flow: Flow,
        memory: &mut Memory,
        (browser, reading, asked): (BrowserId, Reading, PageQuestion),
        answer: Answer,
    ) -> Result<Outcome, LoginPageError> {
        if flow.step == FlowStep::Discovering {
            // Said first: filling in takes a while.
            return Ok(match flow.on(FlowEvent::Filling, self.now()) {
                Ok(next) => Outcome::Moves(Box::new(next)),
                Err(_) => Outcome::Goes(Next::Step),
            });
        }
        if let Err(error) = self.act(browser, memory, answer.acts).await {
            return self.not_taken(flow, memory, (browser, reading, asked), error).await;
        }
        memory.acted_on = Some(reading.mark);
        memory.answered = true;
        memory.refused_before = asked.refusal.map(|refusal| refusal.website_error);
        memory.resent_since = Some(self.now());
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
        Ok(Outcome::Moves(Box::new(Flow {
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

    /// Asks the person, if there is one.
    fn ask(&self, flow: &Flow, asked: &PageQuestion) -> Outcome {
        if flow.unattended {
            return match &flow.website_error {
                Some(said) => {
                    let message = format!("the site refused what is stored: {said}");
                    let failure = FlowFailure::new(FlowError::CredentialsRejected, message);
                    return Outcome::Fails { failure, website_error: flow.website_error.clone() };
                }
                None if !asked.fields.is_empty()
                    && asked.fields.iter().all(|field| flow.needs.contains(&answers::need(field))) =>
                {
                    FlowFailure::new(FlowError::CredentialsRejected, "the site asks again for what was stored and sent")
                }
                None => {
                    let what: Vec<&str> = asked.fields.iter().map(|field| field.reference.as_str()).collect();
                    let what = if what.is_empty() { "a choice".to_owned() } else { what.join(", ") };
                    FlowFailure::new(
                        FlowError::CredentialMissing,
                        format!("the site asks for {what}, which is not stored"),
                    )
                }
            }
            .into();
        }
        let fields = asked.fields.iter().map(RequestedField::from).collect();
        let choices = asked.choices.iter().map(RequestedChoice::from).collect();
        self.moves(flow, FlowEvent::InputRequested { fields, choices })
    }

    fn captcha(&self, flow: &Flow, kind: &str) -> Outcome {
        if flow.unattended {
            return FlowFailure::new(FlowError::Captcha, format!("a captcha stands in the way ({kind})")).into();
        }
        self.outside(flow, CAPTCHA.to_owned(), Vec::new())
    }

    fn elsewhere(&self, flow: &Flow, external: &External) -> Outcome {
        if flow.unattended {
            let message = format!("the site waits for a step elsewhere: {}", external.message);
            return FlowFailure::new(FlowError::CredentialMissing, message).into();
        }
        self.outside(flow, external.message.clone(), external.choices.iter().map(RequestedChoice::from).collect())
    }

    fn outside(&self, flow: &Flow, message: String, choices: Vec<RequestedChoice>) -> Outcome {
        let mut flow = flow.clone();
        if !flow.needs.contains(&FlowRequirement::External) {
            flow.needs.push(FlowRequirement::External);
        }
        self.moves(&flow, FlowEvent::Elsewhere { message, choices })
    }

    /// Keeps a picture for the operator, and gives up.
    async fn not_understood(&self, browser: BrowserId, flow: &Flow, url: &str) -> Outcome {
        if let Ok(png) = self.deps.pages.screenshot(browser).await {
            self.deps.pictures.keep(flow.id, png).await;
        }
        let place = url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        let message = format!("what the page at {place} wants could not be told; the operator finds a picture of it");
        FlowFailure::new(FlowError::PageNotUnderstood, message).into()
    }

    /// A page could not be read or acted on.
    pub(super) async fn failed(
        &self,
        browser: BrowserId,
        flow: &Flow,
        memory: &mut Memory,
        error: LoginPageError,
    ) -> Outcome {
        match error {
            // The way out ended with whoever carried the login before, and the page that was on its way with that.
            LoginPageError::NavigationFailed { .. }
                if memory.taken_over && flow.begun_again < Flow::MAX_BEGUN_AGAIN =>
            {
                *memory = Memory::default();
                return self.moves(flow, FlowEvent::BegunAgain(flow.session));
            }
            LoginPageError::NavigationFailed { .. } => {
                return FlowFailure::new(FlowError::NavigationFailed, error.to_string()).into();
            }
            // The page went elsewhere between being read and being filled in.
            LoginPageError::WrongOrigin { .. } => {
                return FlowFailure::new(FlowError::DomainNotAllowed, error.to_string()).into();
            }
            LoginPageError::Engine(EngineError::NotRunning(_)) => return ended().into(),
            LoginPageError::Stale(_)
            | LoginPageError::NotUsable(_)
            | LoginPageError::Hangs { .. }
            | LoginPageError::Engine(_) => {}
        }
        memory.fruitless += 1;
        if memory.fruitless.max(memory.untaken) < MAX_FRUITLESS {
            return Outcome::Goes(Next::Wait(self.now() + Duration::milliseconds(500)));
        }
        match error {
            LoginPageError::Hangs { .. } => FlowFailure::new(FlowError::NavigationFailed, error.to_string()).into(),
            LoginPageError::Engine(_) => FlowFailure::new(FlowError::BrowserEnded, error.to_string()).into(),
            _ => self.not_understood(browser, flow, "").await,
        }
    }
}

/// The site says no, and offers no way on.
fn refused(refusal: &Refusal) -> Outcome {
    let code = match refusal.kind {
        RefusalKind::SiteFailed => FlowError::NavigationFailed,
        RefusalKind::Rejected
        | RefusalKind::CodeRejected
        | RefusalKind::Locked
        | RefusalKind::RateLimited
        | RefusalKind::Other => FlowError::CredentialsRejected,
    };
    let failure = FlowFailure::new(code, format!("the site said: {}", refusal.website_error));
    Outcome::Fails { failure, website_error: Some(refusal.website_error.clone()) }
}

pub(super) fn not_allowed(host: &str) -> FlowFailure {
    let message = format!("the login went to {host}, which is not among the allowed domains");
    FlowFailure::new(FlowError::DomainNotAllowed, message)
}
