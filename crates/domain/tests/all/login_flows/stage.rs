//! A site that is played, and a login that goes on there.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::auth_connection::{
    AuthConnection, AuthConnectionDeps, AuthConnections, ConnectionStatus, CredentialRef, Flow, FlowBegun, FlowEnd,
    FlowError, FlowKind, FlowRunner, FlowStatus, Memory, MockAuthConnectionRepository, MockExternalCredentials,
    MockFlowChangeNotifier, MockFlowPictures, Next, ProfileSavePermission, RunnerDeps, SubmitRequest,
};
use casement_domain::blob::MockBlobStore;
use casement_domain::credential::{
    Credential, CredentialDeps, CredentialSecret, Credentials, MockCredentialRepository, SealedSecrets,
};
use casement_domain::login_page::{
    Act, Button, ButtonKind, Frame, Handle, Input, LoginPageError, LoginPages, Mark, ReadCondition, Reading, Text,
    TextKind,
};
use casement_domain::name::LabelName;
use casement_domain::profile::{LoadedProfile, MockProfileRepository, ProfileVersions, Profiles};
use casement_domain::project::MockProjectRepository;
use casement_domain::proxy::ProxyRouting;
use casement_domain::replay::{MockReplayMachine, MockReplayRepository, ReplayArchive, ReplayLimits, Replays};
use casement_domain::sealing::Sealer as _;
use casement_domain::session::{Activity, IdOrName, Session};
use casement_domain::storage::UnlimitedDisk;
use casement_domain::testing::{
    CountingIds, FixedClock, NOON, PlainSealer, auth_connection, auth_connection_id, auth_flow, node_id, project,
    project_id, scope, session, session_id,
};
use casement_domain::{BrowserId, CredentialId, ProfileId};
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use time::Duration;
use ulid::Ulid;

use crate::support::{Rows, World};

pub(super) const ORIGIN: &str = "https://d1.example";

/// What the site was done so far.
#[derive(Default)]
pub(super) struct Done {
    pub(super) opened: Vec<String>,
    pub(super) reads: usize,
    /// Every act that was tried, also those that failed.
    pub(super) tried: usize,
    /// What was typed, chosen or pressed, in words.
    pub(super) acts: Vec<String>,
}

impl Done {
    /// Whether that was typed anywhere.
    pub(super) fn typed(&self, text: &str) -> bool {
        self.acts.iter().any(|act| act.ends_with(&format!("={text}")))
    }

    pub(super) fn pressed(&self, what: &str) -> usize {
        self.acts.iter().filter(|act| *act == &format!("click {what}")).count()
    }
}

pub(super) type Reads = dyn Fn(&Done) -> Result<Reading, LoginPageError> + Send + Sync;
pub(super) type Takes = dyn Fn(&Done, &Act) -> Result<(), LoginPageError> + Send + Sync;

/// A site that is played: what it shows, and what it takes.
pub(super) struct Site {
    pub(super) done: Arc<Mutex<Done>>,
    pub(super) clock: Arc<FixedClock>,
    pub(super) shows: Box<Reads>,
    pub(super) takes: Box<Takes>,
}

pub(super) fn words(act: &Act) -> String {
    match act {
        Act::Fill { into, text, .. } => format!("{}={}", into.0, text.expose_secret()),
        Act::FillCode { into, code, .. } => format!("{}={}", into[0].0, code.expose_secret()),
        Act::Check { what, on } => format!("check {} {on}", what.0),
        Act::Choose { from, option, .. } => format!("{}={option}", from.0),
        Act::Click { what, .. } => format!("click {}", what.0),
        Act::Press { .. } => "press".to_owned(),
    }
}

#[async_trait]
impl LoginPages for Site {
    async fn open(&self, _: BrowserId, url: &str) -> Result<(), LoginPageError> {
        self.done.lock().opened.push(url.to_owned());
        Ok(())
    }

    async fn read(&self, _: BrowserId, wait: ReadCondition) -> Result<Reading, LoginPageError> {
        let mut done = self.done.lock();
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
        let mut done = self.done.lock();
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
pub(super) fn page(path: &str, mark: &str) -> Reading {
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

pub(super) fn input(place: usize, name: &str, kind: &str) -> Input {
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

pub(super) fn button(place: usize, label: &str, kind: ButtonKind) -> Button {
    let form = (kind == ButtonKind::Submit).then_some(0);
    Button { place, handle: Handle(label.to_owned()), form, kind, label: label.to_owned(), ..Button::default() }
}

pub(super) fn text(place: usize, kind: TextKind, said: &str) -> Text {
    Text { place, kind, text: said.to_owned(), ..Text::default() }
}

pub(super) fn asks(path: &str, heading: &str, inputs: Vec<Input>) -> Reading {
    let texts = vec![text(0, TextKind::Heading, heading)];
    let send = button(90, "Continue", ButtonKind::Submit);
    Reading { inputs, texts, buttons: vec![send], ..page(path, heading) }
}

pub(super) fn login() -> Reading {
    let inputs = vec![input(1, "username", "text"), input(2, "password", "password")];
    asks("/login", "Sign in", inputs)
}

pub(super) fn code_by_text_message() -> Reading {
    let code = Input { autocomplete: "one-time-code".to_owned(), ..input(2, "code", "text") };
    let mut reading = asks("/code", "Enter the code", vec![code]);
    reading.texts.push(text(1, TextKind::Plain, "We sent a text message (SMS) with a code to your phone ••• 42"));
    reading
}

/// One code in six boxes.
pub(super) fn six_boxes() -> Reading {
    let one =
        |n: usize| Input { max_length: Some(1), mode: "numeric".to_owned(), ..input(n, &format!("digit {n}"), "text") };
    asks("/code", "Enter the verification code", (1..=6).map(one).collect())
}

pub(super) fn home() -> Reading {
    let mut reading = page("/home", "home");
    reading.texts = vec![text(1, TextKind::Heading, "Your orders")];
    reading.buttons = vec![button(2, "Sign out", ButtonKind::Link)];
    reading
}

pub(super) fn says(mut reading: Reading, said: &str) -> Reading {
    reading.texts.push(text(3, TextKind::Alert, said));
    reading.mark = Mark(format!("{} {said}", reading.mark.0));
    reading
}

pub(super) fn restless(reading: Reading, done: &Done) -> Reading {
    Reading { settled: false, mark: Mark(format!("{} {}", reading.mark.0, done.reads)), ..reading }
}

/// What is kept of the connection and its flows.
pub(super) struct Kept {
    pub(super) connection: AuthConnection,
    pub(super) flow: Flow,
    pub(super) ends: Vec<FlowEnd>,
    pub(super) begun: Vec<Flow>,
    /// What is said to whoever asks whether a session may save, the last first; then yes.
    pub(super) let_saves: Vec<ProfileSavePermission>,
    pub(super) deleted: bool,
}

/// What a test plays a flow with.
pub(super) struct Play {
    pub(super) flow: Flow,
    pub(super) connection: AuthConnection,
    pub(super) credential: Option<(Credential, BTreeMap<String, String>)>,
    pub(super) external: MockExternalCredentials,
    pub(super) sessions: Vec<Session>,
    pub(super) let_saves: Vec<ProfileSavePermission>,
}

pub(super) struct Stage {
    pub(super) runner: FlowRunner,
    pub(super) connections: AuthConnections,
    pub(super) kept: Arc<Mutex<Kept>>,
    pub(super) done: Arc<Mutex<Done>>,
    pub(super) pictures: Arc<Mutex<usize>>,
    pub(super) clock: Arc<FixedClock>,
    pub(super) rows: Rows,
    pub(super) memory: Memory,
}

pub(super) fn active() -> Session {
    let mut active = session(1);
    let profile = ProfileId::from_ulid(Ulid::from_parts(11, 1));
    active.shape.profile = Some(LoadedProfile { id: profile, version: None, save_changes: false });
    active
}

impl Play {
    /// Of a person's login, whose browser is there.
    pub(super) fn new() -> Self {
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

    pub(super) fn unattended(mut self) -> Self {
        self.flow.unattended = true;
        self.flow.kind = FlowKind::Reauth;
        self.connection.status = ConnectionStatus::Authenticated;
        self
    }

    pub(super) fn with_values(mut self, values: &[(&str, &str)]) -> Self {
        let credential = credential(values);
        self.connection.settings.credential = Some(CredentialRef::Named("shop".to_owned()));
        self.connection.credential = Some(credential.clone());
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.credential = Some((credential, values));
        self
    }

    pub(super) fn of_ann(self) -> Self {
        self.with_values(&[("username", "ann"), ("password", "right")])
    }

    pub(super) fn at(
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
        let profiles = ProfileVersions::new(
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
            news: Arc::new(MockFlowChangeNotifier::new()),
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
        shots.expect_keep().returning(move |_, _| *taken.lock() += 1);
        let done = Arc::new(Mutex::new(Done::default()));
        let site = Site { done: done.clone(), clock: clock.clone(), shows: Box::new(shows), takes: Box::new(takes) };
        let videos = ReplayArchive::new(
            Arc::new(MockReplayRepository::new()),
            Arc::new(MockBlobStore::new()),
            clock.clone(),
            ReplayLimits { most_bytes: 1, kept_for: Duration::days(1) },
            Arc::new(UnlimitedDisk),
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
                replays: Replays::new(
                    Arc::new(MockReplayMachine::new()),
                    videos,
                    Activity::new(clock.clone(), clock.clone()),
                    ids,
                ),
                pictures: Arc::new(shots),
            },
        );
        Stage { runner, connections, kept, done, pictures, clock, rows, memory: Memory::default() }
    }
}

pub(super) fn credential(values: &[(&str, &str)]) -> Credential {
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
pub(super) fn repository(kept: &Arc<Mutex<Kept>>) -> MockAuthConnectionRepository {
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
    mock.expect_any().returning(move |_| Ok(found(&of.lock())));
    let of = kept.clone();
    mock.expect_find().returning(move |_, _| Ok(found(&of.lock())));
    let of = kept.clone();
    mock.expect_flow().returning(move |_| Ok(Some(of.lock().flow.clone())));
    let of = kept.clone();
    mock.expect_put().returning(move |flow| Ok(stored(&mut of.lock(), flow)));
    let of = kept.clone();
    mock.expect_end().returning(move |flow, end| {
        let mut kept = of.lock();
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
        of.lock().begun.push(flow.clone());
        Ok(FlowBegun::Yes)
    });
    let of = kept.clone();
    mock.expect_let_save().returning(move |_, _| Ok(of.lock().let_saves.pop().unwrap_or(ProfileSavePermission::Yes)));
    let of = kept.clone();
    mock.expect_closed().returning(move |_| {
        of.lock().flow.open = false;
        Ok(())
    });
    mock
}

impl Stage {
    /// Goes on until the flow waits for somebody, or is over; what it is then.
    pub(super) async fn plays(&mut self) -> Flow {
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

    pub(super) async fn submits(&mut self, values: &[(&str, &str)]) -> Flow {
        let values = values.iter().map(|(id, value)| ((*id).to_owned(), SecretString::from(*value))).collect();
        let input = SubmitRequest { field_values: Some(values), ..SubmitRequest::default() };
        let id = auth_connection_id(1).to_string();
        self.connections.submit(&scope(), &id, input).await.expect("taken");
        self.plays().await
    }

    pub(super) fn flow(&self) -> Flow {
        self.kept.lock().flow.clone()
    }

    pub(super) fn done<T>(&self, of: impl FnOnce(&Done) -> T) -> T {
        of(&self.done.lock())
    }

    pub(super) fn last_end(&self) -> FlowEnd {
        self.kept.lock().ends.last().cloned().expect("it has ended")
    }
}

pub(super) fn takes_all(_: &Done, _: &Act) -> Result<(), LoginPageError> {
    Ok(())
}

/// Lets in whoever gives the right password.
pub(super) fn plain(done: &Done) -> Result<Reading, LoginPageError> {
    Ok(if done.typed("right") { home() } else { login() })
}

pub(super) fn why(flow: &Flow) -> (FlowStatus, Option<FlowError>) {
    (flow.status, flow.failure.as_ref().map(|failure| failure.code))
}

pub(super) const fn failed(code: FlowError) -> (FlowStatus, Option<FlowError>) {
    (FlowStatus::Failed, Some(code))
}

impl Stage {
    pub(super) fn clock_since_noon(&self) -> Duration {
        use casement_domain::Clock as _;
        self.clock.now() - NOON
    }
}
