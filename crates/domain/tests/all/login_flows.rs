//! Flows from their first reading to their end, on a site that is played: what ends them, and that something always does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use casement_domain::auth_connection::{
    AuthConnection, AuthConnectionDeps, AuthConnections, BegunWith, ConnectionStatus, CredentialRef, ExternalLogin,
    Flow, FlowBegun, FlowEnd, FlowError, FlowKind, FlowRunner, FlowStatus, FlowStep, KeptCredential, LetSave, Memory,
    MockAuthConnectionRepository, MockExternalCredentials, MockFlowNews, MockFlowPictures, Need, Next, ReauthReason,
    RunnerDeps, Settings, SubmitInput,
};
use casement_domain::blob::MockBlobStore;
use casement_domain::browser::EngineError;
use casement_domain::credential::{
    Credential, CredentialDeps, CredentialSecret, Credentials, MockCredentialRepository, SealedSecrets,
};
use casement_domain::login_page::{
    Act, Await, Button, ButtonKind, Captcha, Frame, Handle, HostPattern, Input, LoginPageError, LoginPages, Mark,
    Reading, Text, TextKind,
};
use casement_domain::name::LabelName;
use casement_domain::profile::{KeptProfiles, LoadedProfile, MockProfileRepository, Profiles};
use casement_domain::project::MockProjectRepository;
use casement_domain::proxy::ProxyRouting;
use casement_domain::replay::{KeptReplays, MockReplayMachine, MockReplayRepository, ReplayLimits, Replays};
use casement_domain::sealing::Sealer as _;
use casement_domain::session::{Activity, EndReason, IdOrName, Session, SessionState};
use casement_domain::testing::{
    CountingIds, FixedClock, NOON, PlainSealer, auth_connection, auth_connection_id, auth_flow, browser_id, node_id,
    project, project_id, scope, session, session_id,
};
use casement_domain::{BrowserId, CredentialId, ProfileId, SessionId};
use pretty_assertions::assert_eq;
use secrecy::{ExposeSecret as _, SecretString};
use time::Duration;
use ulid::Ulid;

use crate::support::{Rows, World, nth};

const ORIGIN: &str = "https://d1.example";

/// What the site was done so far.
#[derive(Default)]
struct Done {
    opened: Vec<String>,
    reads: usize,
    /// Every act that was tried, also those that failed.
    tried: usize,
    /// What was typed, chosen or pressed, in words.
    acts: Vec<String>,
}

impl Done {
    /// Whether that was typed anywhere.
    fn typed(&self, text: &str) -> bool {
        self.acts.iter().any(|act| act.ends_with(&format!("={text}")))
    }

    fn pressed(&self, what: &str) -> usize {
        self.acts.iter().filter(|act| *act == &format!("click {what}")).count()
    }
}

type Reads = dyn Fn(&Done) -> Result<Reading, LoginPageError> + Send + Sync;
type Takes = dyn Fn(&Done, &Act) -> Result<(), LoginPageError> + Send + Sync;

/// A site that is played: what it shows, and what it takes.
struct Site {
    done: Arc<Mutex<Done>>,
    clock: Arc<FixedClock>,
    shows: Box<Reads>,
    takes: Box<Takes>,
}

fn words(act: &Act) -> String {
    match act {
        Act::Fill { into, text, .. } => format!("{}={}", into.0, text.expose_secret()),
        Act::FillCode { into, code, .. } => format!("{}={}", into[0].0, code.expose_secret()),
        Act::Check { what, on } => format!("check {} {on}", what.0),
        Act::Choose { from, option } => format!("{}={option}", from.0),
        Act::Click { what, .. } => format!("click {}", what.0),
        Act::Press { .. } => "press".to_owned(),
    }
}

#[async_trait]
impl LoginPages for Site {
    async fn open(&self, _: BrowserId, url: &str) -> Result<(), LoginPageError> {
        self.done.lock().expect("kept").opened.push(url.to_owned());
        Ok(())
    }

    async fn read(&self, _: BrowserId, wait: Await) -> Result<Reading, LoginPageError> {
        let mut done = self.done.lock().expect("kept");
        done.reads += 1;
        let reading = (self.shows)(&done)?;
        // A page at rest is read at once; one that shows the same, or is on its way, when the wait is over.
        let same = wait.differs_from.as_ref().is_some_and(|mark| *mark == reading.mark);
        self.clock.advance(if same || !reading.settled {
            wait.within.try_into().expect("it can be")
        } else {
            Duration::ZERO
        });
        Ok(reading)
    }

    async fn act(&self, _: BrowserId, acts: Vec<Act>) -> Result<(), LoginPageError> {
        let mut done = self.done.lock().expect("kept");
        done.tried += 1;
        for act in acts {
            (self.takes)(&done, &act)?;
            done.acts.push(words(&act));
        }
        Ok(())
    }

    async fn screenshot(&self, _: BrowserId) -> Result<Vec<u8>, LoginPageError> {
        Ok(b"png".to_vec())
    }
}

/// A page of the site, at rest.
fn page(path: &str, mark: &str) -> Reading {
    let frame = Frame { origin: ORIGIN.to_owned(), url: format!("{ORIGIN}{path}") };
    Reading {
        url: format!("{ORIGIN}{path}"),
        title: "Shop".to_owned(),
        language: "en".to_owned(),
        status: Some(200),
        frames: vec![frame],
        settled: true,
        mark: Mark(mark.to_owned()),
        ..Reading::default()
    }
}

fn input(place: usize, name: &str, kind: &str) -> Input {
    Input {
        place,
        handle: Handle(name.to_owned()),
        form: Some(0),
        kind: kind.to_owned(),
        name: name.to_owned(),
        id: name.to_owned(),
        label: name.to_owned(),
        required: true,
        visible: true,
        ..Input::default()
    }
}

fn button(place: usize, label: &str, kind: ButtonKind) -> Button {
    let form = (kind == ButtonKind::Submit).then_some(0);
    Button { place, handle: Handle(label.to_owned()), form, kind, label: label.to_owned(), ..Button::default() }
}

fn text(place: usize, kind: TextKind, said: &str) -> Text {
    Text { place, kind, text: said.to_owned(), ..Text::default() }
}

fn asks(path: &str, heading: &str, inputs: Vec<Input>) -> Reading {
    let texts = vec![text(0, TextKind::Heading, heading)];
    let send = button(90, "Continue", ButtonKind::Submit);
    Reading { inputs, texts, buttons: vec![send], ..page(path, heading) }
}

fn login() -> Reading {
    let inputs = vec![input(1, "username", "text"), input(2, "password", "password")];
    asks("/login", "Sign in", inputs)
}

fn code_by_text_message() -> Reading {
    let code = Input { autocomplete: "one-time-code".to_owned(), ..input(2, "code", "text") };
    let mut reading = asks("/code", "Enter the code", vec![code]);
    reading.texts.push(text(1, TextKind::Plain, "We sent a text message (SMS) with a code to your phone ••• 42"));
    reading
}

/// One code in six boxes.
fn six_boxes() -> Reading {
    let one =
        |n: usize| Input { max_length: Some(1), mode: "numeric".to_owned(), ..input(n, &format!("digit {n}"), "text") };
    asks("/code", "Enter the verification code", (1..=6).map(one).collect())
}

fn home() -> Reading {
    let mut reading = page("/home", "home");
    reading.texts = vec![text(1, TextKind::Heading, "Your orders")];
    reading.buttons = vec![button(2, "Sign out", ButtonKind::Link)];
    reading
}

fn says(mut reading: Reading, said: &str) -> Reading {
    reading.texts.push(text(3, TextKind::Alert, said));
    reading.mark = Mark(format!("{} {said}", reading.mark.0));
    reading
}

fn restless(reading: Reading, done: &Done) -> Reading {
    Reading { settled: false, mark: Mark(format!("{} {}", reading.mark.0, done.reads)), ..reading }
}

/// What is kept of the connection and its flows.
struct Kept {
    connection: AuthConnection,
    flow: Flow,
    ends: Vec<FlowEnd>,
    begun: Vec<Flow>,
    /// What is said to whoever asks whether a session may save, the last first; then yes.
    let_saves: Vec<LetSave>,
    deleted: bool,
}

/// What a test plays a flow with.
struct Play {
    flow: Flow,
    connection: AuthConnection,
    credential: Option<(Credential, BTreeMap<String, String>)>,
    external: MockExternalCredentials,
    sessions: Vec<Session>,
    let_saves: Vec<LetSave>,
}

struct Stage {
    runner: FlowRunner,
    connections: AuthConnections,
    kept: Arc<Mutex<Kept>>,
    done: Arc<Mutex<Done>>,
    pictures: Arc<Mutex<usize>>,
    clock: Arc<FixedClock>,
    rows: Rows,
    memory: Memory,
}

fn active() -> Session {
    let mut active = session(1);
    let profile = ProfileId::from_ulid(Ulid::from_parts(11, 1));
    active.shape.profile = Some(LoadedProfile { id: profile, version: None, save_changes: false });
    active
}

impl Play {
    /// Of a person's login, whose browser is there.
    fn new() -> Self {
        let connection = auth_connection(1, ProfileId::from_ulid(Ulid::from_parts(11, 1)));
        let flow = Flow {
            node: Some(node_id()),
            session: session_id(1),
            session_made: true,
            open: true,
            ..auth_flow(1, auth_connection_id(1))
        };
        let external = MockExternalCredentials::new();
        Self { flow, connection, credential: None, external, sessions: vec![active()], let_saves: Vec::new() }
    }

    fn unattended(mut self) -> Self {
        self.flow.unattended = true;
        self.flow.kind = FlowKind::Reauth;
        self.connection.status = ConnectionStatus::Authenticated;
        self
    }

    fn with_values(mut self, values: &[(&str, &str)]) -> Self {
        let credential = credential(values);
        self.connection.settings.credential = Some(CredentialRef::Named("shop".to_owned()));
        self.connection.credential = Some(credential.clone());
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.credential = Some((credential, values));
        self
    }

    fn of_ann(self) -> Self {
        self.with_values(&[("username", "ann"), ("password", "right")])
    }

    fn at(
        self,
        shows: impl Fn(&Done) -> Result<Reading, LoginPageError> + Send + Sync + 'static,
        takes: impl Fn(&Done, &Act) -> Result<(), LoginPageError> + Send + Sync + 'static,
    ) -> Stage {
        let clock = Arc::new(FixedClock::default());
        let mut world = World { clock: clock.clone(), ..World::default() };
        let rows = world.keep_sessions(self.sessions);
        world.connections.expect_close().return_const(());
        world.engine.expect_end().returning(|_| Ok(()));
        world.browsers.expect_forget().returning(|_| Ok(()));
        let cases = world.build();

        let kept = Kept {
            connection: self.connection,
            flow: self.flow,
            ends: Vec::new(),
            begun: Vec::new(),
            let_saves: self.let_saves,
            deleted: false,
        };
        let kept = Arc::new(Mutex::new(kept));
        let mut credentials = MockCredentialRepository::new();
        let (stored, secrets) = (self.credential.clone(), self.credential);
        credentials.expect_find().returning(move |_, which| {
            let found = stored.as_ref().map(|(credential, _)| credential.clone());
            Ok(found.filter(|one| match which {
                IdOrName::Id(id) => one.id == *id,
                IdOrName::Name(name) => one.name.as_str() == name,
            }))
        });
        credentials.expect_secrets().returning(move |id| {
            let found = secrets.as_ref().filter(|(credential, _)| credential.id == id);
            Ok(found.map(|(_, values)| {
                let seal = |(name, value): (&String, &String)| {
                    let place = Credential::place(id, &CredentialSecret::Value(name.clone()));
                    (name.clone(), PlainSealer.seal(&place, value.as_bytes()).expect("it can be"))
                };
                SealedSecrets { values: values.iter().map(seal).collect(), totp: None }
            }))
        });
        let credentials = Arc::new(credentials);
        let ids = Arc::new(CountingIds::default());
        let profiles = KeptProfiles::new(
            Arc::new(MockProfileRepository::new()),
            Arc::new(MockBlobStore::new()),
            Arc::new(PlainSealer),
            clock.clone(),
        );
        let connections = AuthConnections::new(AuthConnectionDeps {
            connections: Arc::new(repository(&kept)),
            credentials: credentials.clone(),
            external: Arc::new(self.external),
            profiles: Profiles::new(profiles, clock.clone(), ids.clone(), 7),
            proxies: ProxyRouting::none(),
            sessions: cases.sessions,
            news: Arc::new(MockFlowNews::new()),
            sealer: Arc::new(PlainSealer),
            entropy: ids.clone(),
            clock: clock.clone(),
            ids: ids.clone(),
            most: 7,
        });
        let mut projects = MockProjectRepository::new();
        projects.expect_find().returning(|_, _| Ok(Some(project())));
        let pictures = Arc::new(Mutex::new(0));
        let mut shots = MockFlowPictures::new();
        let taken = pictures.clone();
        shots.expect_keep().returning(move |_, _| *taken.lock().expect("kept") += 1);
        let done = Arc::new(Mutex::new(Done::default()));
        let site = Site { done: done.clone(), clock: clock.clone(), shows: Box::new(shows), takes: Box::new(takes) };
        let films = KeptReplays::new(
            Arc::new(MockReplayRepository::new()),
            Arc::new(MockBlobStore::new()),
            clock.clone(),
            ReplayLimits { most_bytes: 1, kept_for: Duration::days(1) },
        );
        let sealer = Arc::new(PlainSealer);
        let runner = FlowRunner::new(
            connections.clone(),
            RunnerDeps {
                node: node_id(),
                pages: Arc::new(site),
                projects: Arc::new(projects),
                credentials: Credentials::new(CredentialDeps {
                    credentials,
                    sealer,
                    clock: clock.clone(),
                    ids: ids.clone(),
                    most: 9,
                }),
                replays: Replays::new(Arc::new(MockReplayMachine::new()), films, Activity::new(clock.clone()), ids),
                pictures: Arc::new(shots),
            },
        );
        Stage { runner, connections, kept, done, pictures, clock, rows, memory: Memory::default() }
    }
}

fn credential(values: &[(&str, &str)]) -> Credential {
    Credential {
        id: CredentialId::from_ulid(Ulid::from_parts(13, 1)),
        project: project_id(),
        name: LabelName::parse("shop").expect("a name"),
        domain: "d1.example".to_owned(),
        sso_provider: None,
        value_keys: values.iter().map(|(name, _)| (*name).to_owned()).collect(),
        has_totp_secret: false,
        created_at: NOON,
        updated_at: NOON,
    }
}

/// Keeps one connection and its flow, as the database does.
fn repository(kept: &Arc<Mutex<Kept>>) -> MockAuthConnectionRepository {
    let mut mock = MockAuthConnectionRepository::new();
    fn stored(kept: &mut Kept, flow: &Flow) -> bool {
        let fresh = flow.revision == kept.flow.revision && kept.flow.status == FlowStatus::InProgress;
        if fresh {
            kept.flow = Flow { revision: flow.revision + 1, ..flow.clone() };
        }
        fresh
    }
    let found = |kept: &Kept| {
        let flow = Some(Box::new(kept.flow.clone())).filter(|flow| flow.kind != FlowKind::HealthCheck);
        (!kept.deleted).then(|| AuthConnection { flow, ..kept.connection.clone() })
    };
    let of = kept.clone();
    mock.expect_any().returning(move |_| Ok(found(&of.lock().expect("kept"))));
    let of = kept.clone();
    mock.expect_find().returning(move |_, _| Ok(found(&of.lock().expect("kept"))));
    let of = kept.clone();
    mock.expect_flow().returning(move |_| Ok(Some(of.lock().expect("kept").flow.clone())));
    let of = kept.clone();
    mock.expect_put().returning(move |flow| Ok(stored(&mut of.lock().expect("kept"), flow)));
    let of = kept.clone();
    mock.expect_end().returning(move |flow, end| {
        let mut kept = of.lock().expect("kept");
        if kept.deleted || !stored(&mut kept, flow) {
            return Ok(false);
        }
        kept.connection.status = end.status.unwrap_or(kept.connection.status);
        kept.connection.needs = end.needs.clone().or_else(|| kept.connection.needs.clone());
        kept.ends.push(end.clone());
        Ok(true)
    });
    let of = kept.clone();
    mock.expect_begin().returning(move |flow| {
        of.lock().expect("kept").begun.push(flow.clone());
        Ok(FlowBegun::Yes)
    });
    let of = kept.clone();
    mock.expect_let_save().returning(move |_, _| Ok(of.lock().expect("kept").let_saves.pop().unwrap_or(LetSave::Yes)));
    let of = kept.clone();
    mock.expect_closed().returning(move |_| {
        of.lock().expect("kept").flow.open = false;
        Ok(())
    });
    mock
}

impl Stage {
    /// Goes on until the flow waits for somebody, or is over; what it is then.
    async fn plays(&mut self) -> Flow {
        // For as long as the site is looked at again and again without anything being stored.
        let mut glances = 0;
        for _ in 0..2000 {
            let before = self.flow().revision;
            let next = self.runner.step(self.flow().id, &mut self.memory).await.expect("a step");
            let flow = self.flow();
            glances = if flow.is_awaiting() && flow.revision == before { glances + 1 } else { 0 };
            match next {
                Next::Done => return flow,
                Next::Step => {}
                Next::Wait(_) if glances >= 8 => return flow,
                Next::Wait(at) => self.clock.set(at),
            }
        }
        panic!("it never comes to anything: {:?}", self.flow());
    }

    async fn submits(&mut self, values: &[(&str, &str)]) -> Flow {
        let values = values.iter().map(|(id, value)| ((*id).to_owned(), SecretString::from(*value))).collect();
        let input = SubmitInput { field_values: Some(values), ..SubmitInput::default() };
        let id = auth_connection_id(1).to_string();
        self.connections.submit(&scope(), &id, input).await.expect("taken");
        self.plays().await
    }

    fn flow(&self) -> Flow {
        self.kept.lock().expect("kept").flow.clone()
    }

    fn done<T>(&self, of: impl FnOnce(&Done) -> T) -> T {
        of(&self.done.lock().expect("kept"))
    }

    fn last_end(&self) -> FlowEnd {
        self.kept.lock().expect("kept").ends.last().cloned().expect("it has ended")
    }
}

fn takes_all(_: &Done, _: &Act) -> Result<(), LoginPageError> {
    Ok(())
}

/// Lets in whoever gives the right password.
fn plain(done: &Done) -> Result<Reading, LoginPageError> {
    Ok(if done.typed("right") { home() } else { login() })
}

fn why(flow: &Flow) -> (FlowStatus, Option<FlowError>) {
    (flow.status, flow.failure.as_ref().map(|failure| failure.code))
}

const fn failed(code: FlowError) -> (FlowStatus, Option<FlowError>) {
    (FlowStatus::Failed, Some(code))
}

#[tokio::test]
async fn what_a_person_gives_logs_in_and_is_kept_with_the_end() {
    let mut stage = Play::new().at(plain, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.step, FlowStep::AwaitingInput);
    let ids: Vec<_> = waits.fields.iter().map(|field| field.id.as_str()).collect();
    assert_eq!(ids, ["identifier", "password"]);
    let over = stage.submits(&[("identifier", "ann"), ("password", "right")]).await;
    assert_eq!((over.status, over.step), (FlowStatus::Success, FlowStep::Completed), "{over:?}");
    let end = stage.last_end();
    assert_eq!(end.status, Some(ConnectionStatus::Authenticated));
    assert_eq!(end.needs, Some(vec![Need::Value("password".to_owned()), Need::Value("username".to_owned())]));
    let Some(KeptCredential::New { credential, secrets, most: 9 }) = end.kept else { panic!("{:?}", end.kept) };
    assert_eq!((credential.name.as_str(), end.credential.as_deref()), ("d1.example ann", Some("d1.example ann")));
    assert_eq!(secrets.values.keys().collect::<Vec<_>>(), ["password", "username"]);
    assert_eq!(stage.rows.states(), [SessionState::Ended(EndReason::Deleted)]);
}

#[tokio::test]
async fn after_a_deletion_what_was_given_is_kept_nowhere() {
    let mut stage = Play::new().at(plain, takes_all);
    stage.plays().await;
    let values = [("identifier", "ann"), ("password", "right")].map(|(id, value)| (id.to_owned(), value.into()));
    let input = SubmitInput { field_values: Some(values.into()), ..SubmitInput::default() };
    stage.connections.submit(&scope(), &auth_connection_id(1).to_string(), input).await.expect("taken");
    while stage.flow().post_login_url.is_none() {
        stage.runner.step(stage.flow().id, &mut stage.memory).await.expect("a step");
    }
    // No repository of credentials but this one's end may write; the mock of the other one refuses every call that does.
    stage.kept.lock().expect("kept").deleted = true;
    stage.runner.step(stage.flow().id, &mut stage.memory).await.expect("a step");
    assert!(stage.kept.lock().expect("kept").ends.is_empty());
}

#[tokio::test]
async fn a_login_whose_profile_was_saved_by_another_is_made_again_with_what_was_given() {
    let mut play = Play::new();
    let second = SessionId::from_ulid(nth(1));
    play.sessions.push(Session { id: second, ..active() });
    play.let_saves = vec![LetSave::Outdated, LetSave::NotYet];
    // Each session begins logged out.
    let shows = |done: &Done| Ok(if done.pressed("Continue") < done.opened.len() { login() } else { home() });
    let mut stage = play.at(shows, takes_all);
    stage.plays().await;
    let over = stage.submits(&[("identifier", "ann"), ("password", "right")]).await;
    assert_eq!((over.status, over.session, over.begun_again), (FlowStatus::Success, second, 1), "{over:?}");
    assert_eq!(stage.done(|done| (done.opened.len(), done.pressed("Continue"))), (2, 2));
    assert_eq!(stage.rows.states(), [SessionState::Ended(EndReason::Deleted); 2]);
    assert_eq!(
        stage.last_end().needs,
        Some(vec![Need::Value("password".to_owned()), Need::Value("username".to_owned())])
    );
}

#[tokio::test]
async fn a_page_that_was_lost_with_who_carried_the_login_is_opened_again_and_filled_in_as_before() {
    let lost = |done: &Done| {
        if done.opened.len() == 1 && done.pressed("Continue") == 1 {
            return Err(LoginPageError::NavigationFailed { reason: "net::ERR_EMPTY_RESPONSE".to_owned() });
        }
        Ok(if done.pressed("Continue") == 2 { home() } else { login() })
    };
    for carried_on in [true, false] {
        let mut stage = Play::new().of_ann().at(lost, takes_all);
        while stage.flow().acts == 0 {
            stage.runner.step(stage.flow().id, &mut stage.memory).await.expect("a step");
        }
        if !carried_on {
            stage.memory = Memory::default();
        }
        let over = stage.plays().await;
        // Whoever has seen the page go wrong knows that it is the site's fault.
        let expected = if carried_on { failed(FlowError::NavigationFailed) } else { (FlowStatus::Success, None) };
        assert_eq!(why(&over), expected, "{over:?}");
    }
}

#[tokio::test]
async fn a_value_that_the_page_cannot_take_is_asked_for_again_and_not_for_ever() {
    let boxes = |_: &Done, act: &Act| match act {
        Act::FillCode { into, code, .. } if into.len() != code.expose_secret().len() => {
            Err(LoginPageError::NotUsable("there are 6 boxes for 5 characters".to_owned()))
        }
        _ => Ok(()),
    };
    let shows = |done: &Done| Ok(if done.typed("123456") { home() } else { six_boxes() });
    let mut stage = Play::new().at(shows, boxes);
    let asked = stage.plays().await;
    assert_eq!((asked.step, asked.website_error.as_deref()), (FlowStep::AwaitingInput, None));
    let again = stage.submits(&[("code", "12345")]).await;
    assert_eq!((again.step, again.status), (FlowStep::AwaitingInput, FlowStatus::InProgress));
    assert!(again.website_error.as_deref().is_some_and(|said| said.contains("6 boxes for 5")), "{again:?}");
    assert_eq!(again.fields, asked.fields, "fields keep their ids");
    assert!(stage.clock_since_noon() < Duration::minutes(2));
    let over = stage.submits(&[("code", "123456")]).await;
    assert_eq!(over.status, FlowStatus::Success);

    let mut stage = Play::new().at(|_| Ok(six_boxes()), boxes);
    let mut flow = stage.plays().await;
    let mut times = 0;
    while flow.status == FlowStatus::InProgress {
        flow = stage.submits(&[("code", "12345")]).await;
        times += 1;
    }
    assert_eq!((why(&flow), times), (failed(FlowError::PageNotUnderstood), 5));
    assert_eq!(*stage.pictures.lock().expect("kept"), 1);
}

#[tokio::test]
async fn a_page_that_takes_nothing_ends_a_login_by_itself_soon() {
    // Something lies over the button; a form that is drawn anew without end; a handler that hangs.
    let covered = |act: &Act| match act {
        Act::Click { .. } => Err(LoginPageError::NotUsable("something lies over it".to_owned())),
        _ => Ok(()),
    };
    let redrawn = |act: &Act| match act {
        Act::Fill { into, .. } => Err(LoginPageError::Stale(into.clone())),
        _ => Ok(()),
    };
    let hangs = |act: &Act| match act {
        Act::Click { .. } => Err(LoginPageError::Hangs { seconds: 5 }),
        _ => Ok(()),
    };
    /// Whether a page takes what is done to it.
    type IsTaken = fn(&Act) -> Result<(), LoginPageError>;
    let ways: [(IsTaken, bool, FlowError); 3] = [
        (covered, true, FlowError::PageNotUnderstood),
        (redrawn, false, FlowError::PageNotUnderstood),
        (hangs, true, FlowError::NavigationFailed),
    ];
    for (takes, rests, code) in ways {
        let shows = move |done: &Done| Ok(if rests { login() } else { restless(login(), done) });
        let mut stage = Play::new().of_ann().unattended().at(shows, move |_, act| takes(act));
        let over = stage.plays().await;
        assert_eq!(why(&over), failed(code), "{over:?}");
        assert!(stage.clock_since_noon() < Duration::minutes(2), "{}", stage.clock_since_noon());
        assert!(stage.done(|done| done.tried) <= 6);

        // With a person at hand it is asked what to do.
        let mut stage = Play::new().of_ann().at(shows, move |_, act| takes(act));
        let flow = stage.plays().await;
        if code == FlowError::PageNotUnderstood {
            assert_eq!((flow.step, flow.status), (FlowStep::AwaitingInput, FlowStatus::InProgress), "{flow:?}");
        } else {
            assert_eq!(why(&flow), failed(code));
        }
    }
}

#[tokio::test]
async fn a_banner_that_cannot_be_pressed_ends_the_login() {
    let shows = |_: &Done| {
        let mut reading = login();
        reading.layers =
            vec![casement_domain::login_page::Layer { marks: "div cookie-consent".to_owned(), dialog: true }];
        let mut accept = button(50, "Accept all cookies", ButtonKind::Button);
        accept.layer = Some(0);
        reading.buttons.push(accept);
        reading.texts.push(Text { layer: Some(0), ..text(49, TextKind::Plain, "We use cookies on this site") });
        Ok(reading)
    };
    let takes = |_: &Done, _: &Act| Err(LoginPageError::NotUsable("something lies over it".to_owned()));
    let mut stage = Play::new().of_ann().at(shows, takes);
    assert_eq!(why(&stage.plays().await), failed(FlowError::PageNotUnderstood));
}

#[tokio::test]
async fn a_login_goes_on_with_what_it_began_with() {
    let mut play = Play::new().of_ann();
    play.connection.settings.login_url = Some(format!("{ORIGIN}/old"));
    play.connection.settings.allowed_domains = vec![HostPattern::parse("idp.example").expect("a host")];
    play.flow.begun_with = Some(Box::new(BegunWith::of(&play.connection)));
    let elsewhere = |reading: Reading| Reading {
        url: "https://idp.example/login".to_owned(),
        frames: vec![Frame { origin: "https://idp.example".to_owned(), url: "https://idp.example/login".to_owned() }],
        ..reading
    };
    let shows = move |done: &Done| Ok(if done.typed("right") { home() } else { elsewhere(login()) });
    let mut stage = play.at(shows, takes_all);
    {
        // It is told something else: another page, no other host, no credential, and to keep nothing.
        let mut kept = stage.kept.lock().expect("kept");
        kept.connection.settings =
            Settings { login_url: Some(format!("{ORIGIN}/new")), save_credentials: false, ..Settings::default() };
        kept.connection.credential = None;
        kept.connection.updated_at = NOON + Duration::seconds(1);
    }
    let over = stage.plays().await;
    assert_eq!(over.status, FlowStatus::Success, "{over:?}");
    assert_eq!(stage.done(|done| done.opened.clone()), [format!("{ORIGIN}/old")]);
}

#[tokio::test]
async fn what_was_only_called_otherwise_is_followed() {
    let mut play = Play::new().of_ann();
    play.flow.begun_with = Some(Box::new(BegunWith {
        credential: Some(CredentialRef::Auto { provider: "called otherwise since".to_owned() }),
        ..BegunWith::of(&play.connection)
    }));
    assert_eq!(play.at(plain, takes_all).plays().await.status, FlowStatus::Success);
}

#[tokio::test]
async fn who_is_logged_in_already_does_not_change_what_a_login_needs() {
    let shows = |done: &Done| {
        Ok(match (done.typed("right"), done.typed("424242")) {
            (true, true) => home(),
            (true, false) => code_by_text_message(),
            _ => login(),
        })
    };
    let mut stage = Play::new().of_ann().at(shows, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.step, FlowStep::AwaitingInput, "{waits:?}");
    let code = waits.fields[0].id.clone();
    assert_eq!(stage.submits(&[(&code, "424242")]).await.status, FlowStatus::Success);
    let connection = stage.kept.lock().expect("kept").connection.clone();
    assert_eq!(connection.reauth(false).reason, ReauthReason::RequiresSmsCode);

    let mut play = Play::new().of_ann();
    play.connection.needs = connection.needs;
    let mut stage = play.at(|_| Ok(home()), takes_all);
    assert_eq!(stage.plays().await.status, FlowStatus::Success);
    let connection = stage.kept.lock().expect("kept").connection.clone();
    assert_eq!(connection.reauth(false).reason, ReauthReason::RequiresSmsCode);

    // The first login of all may find itself logged in.
    let mut stage = Play::new().of_ann().at(|_| Ok(home()), takes_all);
    assert_eq!(stage.plays().await.status, FlowStatus::Success);
    assert_eq!(stage.last_end().needs, Some(Vec::new()));
}

#[tokio::test]
async fn who_answers_in_the_live_view_is_needed_again() {
    let shows = |done: &Done| Ok(if done.reads > 4 { home() } else { login() });
    let mut stage = Play::new().at(shows, takes_all);
    assert_eq!(stage.plays().await.status, FlowStatus::Success);
    assert_eq!(stage.last_end().needs, Some(vec![Need::External]));

    // A form that only grows was answered by nobody.
    let shows = |done: &Done| {
        Ok(match done.typed("right") {
            true => home(),
            false if done.reads > 3 => login(),
            false => asks("/login", "Sign in", vec![input(1, "username", "text")]),
        })
    };
    let mut stage = Play::new().at(shows, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.fields.len(), 2, "{waits:?}");
    stage.submits(&[("identifier", "ann"), ("password", "right")]).await;
    assert!(!stage.last_end().needs.expect("needs").contains(&Need::External));
}

#[tokio::test]
async fn a_slow_site_is_waited_for_and_refuses_nothing_by_that() {
    for unattended in [true, false] {
        // The form stays for half a minute, until the answer is there.
        let shows = |done: &Done| {
            Ok(match done.typed("right") {
                true if done.reads > 4 => home(),
                true => Reading { settled: false, ..login() },
                false => login(),
            })
        };
        let play = Play::new().of_ann();
        let play = if unattended { play.unattended() } else { play };
        let mut stage = play.at(shows, takes_all);
        let over = stage.plays().await;
        assert_eq!(over.status, FlowStatus::Success, "{over:?}");
        assert_eq!(stage.done(|done| done.pressed("Continue")), 1, "it is sent once");
    }
    // What it said before is no news.
    let shows = |done: &Done| {
        let wrong = says(login(), "Wrong user name or password.");
        Ok(match (done.typed("right"), done.typed("wrong")) {
            (true, _) if done.reads > 20 => home(),
            (true, _) => Reading { settled: false, ..wrong },
            (_, true) => wrong,
            _ => login(),
        })
    };
    let mut stage = Play::new().at(shows, takes_all);
    stage.plays().await;
    let again = stage.submits(&[("identifier", "ann"), ("password", "wrong")]).await;
    assert_eq!(again.website_error.as_deref(), Some("Wrong user name or password."));
    stage.done.lock().expect("kept").reads = 17;
    let over = stage.submits(&[("identifier", "ann"), ("password", "right")]).await;
    assert_eq!(over.status, FlowStatus::Success, "{over:?}");
}

#[tokio::test]
async fn a_site_that_never_answers_ends_a_login_by_itself() {
    let shows = |done: &Done| Ok(if done.typed("right") { restless(login(), done) } else { login() });
    let mut stage = Play::new().of_ann().unattended().at(shows, takes_all);
    let over = stage.plays().await;
    assert_eq!(why(&over), failed(FlowError::CredentialsRejected));
    assert!(stage.clock_since_noon() < Duration::minutes(3));
}

#[tokio::test]
async fn a_home_page_that_never_rests_is_a_success_all_the_same() {
    // After a yes on the telephone, after a captcha, after what was done in the live view.
    let push = || {
        let mut reading = page("/push", "push");
        reading.texts = vec![text(1, TextKind::Plain, "Approve the sign-in request on your phone")];
        reading
    };
    let captcha = || {
        let mut reading = page("/captcha", "captcha");
        reading.captchas = vec![Captcha { kind: "recaptcha".to_owned(), blocking: true, solved: false }];
        reading
    };
    let asks: [fn() -> Reading; 3] = [push, captcha, login];
    for first in asks {
        let shows = move |done: &Done| Ok(if done.reads > 5 { restless(home(), done) } else { first() });
        let mut stage = Play::new().at(shows, takes_all);
        let over = stage.plays().await;
        assert_eq!(over.status, FlowStatus::Success, "{over:?}");
    }
}

#[tokio::test]
async fn of_a_step_elsewhere_that_changes_its_words_without_end_a_person_is_told_so_often_and_no_more() {
    let push = |n: usize| {
        let mut reading = page("/push", &n.to_string());
        reading.texts = vec![text(1, TextKind::Plain, &format!("Approve the sign-in request on your phone: {n}"))];
        reading
    };
    let shows = move |done: &Done| Ok(if done.reads > 100 { home() } else { push(done.reads) });
    let mut stage = Play::new().at(shows, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.step, FlowStep::AwaitingExternalAction, "{waits:?}");
    let told = waits.external_action.as_deref().unwrap_or_default();
    // Once as the step begins, and 50 times as it changes.
    assert!(told.ends_with(": 51"), "{told}");
    assert_eq!(stage.plays().await.revision, waits.revision, "nothing more is told");
    stage.done.lock().expect("kept").reads = 100;
    assert_eq!(stage.plays().await.status, FlowStatus::Success, "the page is looked at all the same");
}

#[tokio::test]
async fn a_page_that_changes_its_fields_without_end_is_given_up() {
    let shows = |done: &Done| {
        let name = if done.reads.is_multiple_of(2) { "company" } else { "tenant" };
        let inputs = vec![input(1, name, "text"), input(2, "username", "text"), input(3, "password", "password")];
        Ok(asks("/login", "Sign in", inputs))
    };
    let mut stage = Play::new().at(shows, takes_all);
    let over = stage.plays().await;
    assert_eq!(why(&over), failed(FlowError::PageNotUnderstood));
    assert!(stage.clock_since_noon() < Duration::minutes(5));
}

#[tokio::test]
async fn what_counts_down_in_a_choice_does_not_rename_it() {
    let shows = |done: &Done| {
        let mut reading = code_by_text_message();
        let left = 60 - done.reads.min(59);
        let label = format!("Call me instead ({left} s)");
        reading.buttons.push(button(95, &label, ButtonKind::Button));
        reading.mark = Mark(label);
        Ok(reading)
    };
    let mut play = Play::new();
    play.flow.progress.password = true;
    play.flow.acts = 1;
    let mut stage = play.at(shows, takes_all);
    let waits = stage.plays().await;
    let ids: Vec<_> = waits.choices.iter().map(|choice| (choice.id.as_str(), choice.label.as_str())).collect();
    assert_eq!(ids, [("mfa-call-me-instead", "Call me instead")]);
    let revision = waits.revision;
    assert_eq!(stage.plays().await.revision, revision, "nothing has moved");
}

#[tokio::test]
async fn a_login_by_itself_goes_by_the_other_site_that_was_chosen_beside_a_form_before() {
    const SITE: &str = "Continue with Microsoft";
    let shows = |done: &Done| {
        let mut reading = login();
        match (done.pressed(SITE), done.typed("right")) {
            (0, _) => reading.buttons.push(button(95, SITE, ButtonKind::Button)),
            (_, true) => return Ok(home()),
            _ => reading.url = "https://d1.example/other".to_owned(),
        }
        Ok(reading)
    };
    let waits = Play::new().at(shows, takes_all).plays().await;
    let label = waits.choices.first().expect("a choice").label.clone();
    let mut play = Play::new().of_ann().unattended();
    let fields = ["username", "password"].map(|name| Need::Value(name.to_owned()));
    play.connection.needs = Some([vec![Need::Choice(label)], fields.to_vec()].concat());
    let mut stage = play.at(shows, takes_all);
    let over = stage.plays().await;
    assert_eq!(over.status, FlowStatus::Success, "{over:?}");
    assert_eq!(stage.done(|done| done.pressed(SITE)), 1);
}

#[tokio::test]
async fn what_is_not_stored_ends_a_login_by_itself() {
    let mut stage = Play::new().with_values(&[("username", "ann")]).unattended().at(plain, takes_all);
    let over = stage.plays().await;
    assert_eq!(why(&over), failed(FlowError::CredentialMissing));
    assert!(over.failure.is_some_and(|failure| failure.message.contains("password")));
    assert_eq!(stage.last_end().status, Some(ConnectionStatus::NeedsAuth));
}

#[tokio::test]
async fn a_provider_that_fails_ends_the_login() {
    for unattended in [true, false] {
        let mut play = Play::new();
        play.connection.settings.credential = Some(CredentialRef::Auto { provider: "vault".to_owned() });
        play.external.expect_fetch().returning(|_, _, _| Err("the vault is closed".to_owned()));
        let play = if unattended { play.unattended() } else { play };
        let over = play.at(plain, takes_all).plays().await;
        assert_eq!(why(&over), failed(FlowError::ProviderError));
        assert_eq!(over.failure.map(|failure| failure.message).as_deref(), Some("the vault is closed"));
    }
    // That it has nothing is another thing.
    let mut play = Play::new().unattended();
    play.connection.settings.credential = Some(CredentialRef::Auto { provider: "vault".to_owned() });
    play.external.expect_fetch().returning(|_, _, _| Ok(None::<ExternalLogin>));
    assert_eq!(why(&play.at(plain, takes_all).plays().await), failed(FlowError::CredentialMissing));
}

#[tokio::test]
async fn a_captcha_stops_a_login_by_itself_and_makes_a_person_wait() {
    let shows = |_: &Done| {
        let mut reading = login();
        reading.captchas = vec![Captcha { kind: "recaptcha".to_owned(), blocking: false, solved: false }];
        Ok(reading)
    };
    let mut stage = Play::new().of_ann().unattended().at(shows, takes_all);
    assert_eq!(why(&stage.plays().await), failed(FlowError::Captcha));
    assert_eq!(stage.done(|done| done.tried), 0, "nothing is sent past it");
    let mut stage = Play::new().of_ann().at(shows, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.step, FlowStep::AwaitingExternalAction, "{waits:?}");
}

#[tokio::test]
async fn a_browser_that_is_gone_ends_the_login() {
    let ended = Session { state: SessionState::Ended(EndReason::Crashed), ended_at: Some(NOON), ..active() };
    let mut play = Play::new();
    play.sessions = vec![ended];
    assert_eq!(why(&play.at(plain, takes_all).plays().await), failed(FlowError::BrowserEnded));
    let gone = |_: &Done| Err(LoginPageError::Engine(EngineError::NotRunning(browser_id(1))));
    let mut stage = Play::new().at(gone, takes_all);
    assert_eq!(why(&stage.plays().await), failed(FlowError::BrowserEnded));
    assert_eq!(stage.done(|done| done.reads), 1);
}

#[tokio::test]
async fn a_login_that_nobody_answers_expires() {
    let mut stage = Play::new().at(plain, takes_all);
    assert_eq!(stage.plays().await.step, FlowStep::AwaitingInput);
    stage.clock.advance(Flow::LIFE);
    let over = stage.plays().await;
    assert_eq!((over.status, over.step), (FlowStatus::Expired, FlowStep::AwaitingInput));
    assert_eq!(stage.rows.states(), [SessionState::Ended(EndReason::Deleted)], "its browser ends");
}

#[tokio::test]
async fn a_site_that_is_asked_too_often_ends_the_login_in_its_words() {
    let shows = |done: &Done| {
        let mut reading = page("/login", "too many");
        reading.status = Some(429);
        reading.texts = vec![text(1, TextKind::Heading, "Too many attempts. Try again later.")];
        Ok(if done.acts.is_empty() { login() } else { reading })
    };
    let mut stage = Play::new().of_ann().at(shows, takes_all);
    let over = stage.plays().await;
    assert_eq!(why(&over), failed(FlowError::CredentialsRejected));
    assert_eq!(over.website_error.as_deref(), Some("Too many attempts. Try again later."));
}

#[tokio::test]
async fn a_site_refuses_so_often_and_no_more() {
    let shows = |done: &Done| {
        let sent = done.pressed("Continue");
        Ok(if sent > 0 { says(login(), &format!("Wrong password ({sent})")) } else { login() })
    };
    let mut stage = Play::new().at(shows, takes_all);
    let mut flow = stage.plays().await;
    let mut times = 0;
    while flow.status == FlowStatus::InProgress {
        flow = stage.submits(&[("identifier", "ann"), ("password", "guess")]).await;
        times += 1;
    }
    assert_eq!((why(&flow), times), (failed(FlowError::CredentialsRejected), 5));
    assert!(flow.website_error.is_some_and(|said| said.starts_with("Wrong password")));
}

#[tokio::test]
async fn a_login_acts_so_often_and_no_more() {
    // One link to the login after the other.
    let shows = |done: &Done| {
        let mut reading = page(&format!("/{}", done.acts.len()), &format!("{}", done.acts.len()));
        reading.texts = vec![text(1, TextKind::Heading, "Welcome to the shop")];
        reading.buttons = vec![button(2, "Log in", ButtonKind::Link)];
        Ok(reading)
    };
    let mut stage = Play::new().at(shows, takes_all);
    let over = stage.plays().await;
    assert_eq!(why(&over), failed(FlowError::PageNotUnderstood));
    assert_eq!((over.acts, stage.done(|done| done.tried)), (40, 40));
}

#[tokio::test]
async fn a_look_that_finds_the_login_gone_begins_the_next_one_with_its_end() {
    let mut play = Play::new().of_ann();
    play.flow.kind = FlowKind::HealthCheck;
    play.flow.unattended = true;
    play.connection.status = ConnectionStatus::Authenticated;
    play.connection.needs = Some(vec![Need::Value("username".to_owned())]);
    let mut stage = play.at(|_| Ok(login()), takes_all);
    stage.plays().await;
    let end = stage.last_end();
    let next = end.next.expect("a login by itself");
    assert_eq!((next.kind, next.unattended), (FlowKind::Reauth, true));
    assert_eq!(end.status, Some(ConnectionStatus::Authenticated), "until that has ended");
    assert!(stage.kept.lock().expect("kept").begun.is_empty(), "not in a step of its own, which may never come");

    // Whoever switched it off meanwhile is heard.
    let mut play = Play::new().of_ann();
    play.flow.kind = FlowKind::HealthCheck;
    play.connection.needs = Some(vec![Need::Value("username".to_owned())]);
    play.flow.begun_with = Some(Box::new(BegunWith::of(&play.connection)));
    play.connection.settings.auto_reauth = false;
    play.connection.updated_at = NOON + Duration::seconds(1);
    let mut stage = play.at(|_| Ok(login()), takes_all);
    stage.plays().await;
    assert_eq!((stage.last_end().next, stage.last_end().status), (None, Some(ConnectionStatus::NeedsAuth)));
}

#[tokio::test]
async fn a_list_takes_one_of_its_options() {
    let shows = |done: &Done| {
        let options = vec!["North".to_owned(), "South".to_owned()];
        let company = Input { options, ..input(1, "company", "select") };
        let inputs = vec![company, input(2, "username", "text"), input(3, "password", "password")];
        Ok(if done.typed("right") { home() } else { asks("/login", "Sign in", inputs) })
    };
    let mut stage = Play::new().at(shows, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.fields[0].options, ["North", "South"]);
    let company = waits.fields[0].id.clone();
    let input = |option: &str| {
        let values = [(&*company, option), ("identifier", "ann"), ("password", "right")];
        let values = values.map(|(id, value)| (id.to_owned(), SecretString::from(value)));
        SubmitInput { field_values: Some(values.into()), ..SubmitInput::default() }
    };
    let id = auth_connection_id(1).to_string();
    let refused = stage.connections.submit(&scope(), &id, input("West")).await.expect_err("no such option");
    assert!(refused.to_string().contains("options"), "{refused}");
    stage.connections.submit(&scope(), &id, input("South")).await.expect("taken");
    assert_eq!(stage.plays().await.status, FlowStatus::Success);
    assert!(stage.done(|done| done.typed("South")));
}

impl Stage {
    fn clock_since_noon(&self) -> Duration {
        use casement_domain::Clock as _;
        self.clock.now() - NOON
    }
}
