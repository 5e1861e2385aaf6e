//! A login at a fake site, with a stored connection and flow.

use std::collections::BTreeMap;
use std::sync::Arc;

use casement_domain::auth_connection::{
    AuthConnection, AuthConnectionDeps, AuthConnections, ConnectionStatus, CredentialRef, Flow, FlowBegun, FlowEnd,
    FlowError, FlowKind, FlowRunner, FlowStatus, MockAuthConnectionRepository, MockExternalCredentials,
    MockFlowChangeNotifier, MockFlowPictures, Next, PagePhase, ProfileSavePermission, RunnerDeps, SubmitRequest,
};
use casement_domain::blob::MockBlobStore;
use casement_domain::credential::{
    Credential, CredentialDeps, CredentialSecret, Credentials, MockCredentialRepository, SealedSecrets,
};
use casement_domain::engine::ConfiguredEngines;
use casement_domain::login_page::{Act, LoginPageError, Reading};
use casement_domain::name::LabelName;
use casement_domain::profile::{LoadedProfile, MockProfileRepository, ProfileVersions, Profiles};
use casement_domain::project::MockProjectRepository;
use casement_domain::proxy::ProxyRouting;
use casement_domain::replay::{MockReplayMachine, MockReplayRepository, ReplayArchive, ReplayLimits, Replays};
use casement_domain::sealing::Sealer as _;
use casement_domain::session::{Activity, IdOrName, Session};
use casement_domain::session_operation::SessionOperations;
use casement_domain::storage::UnlimitedDisk;
use casement_domain::testing::{
    CountingIds, FixedClock, NOON, PlainSealer, auth_connection, auth_connection_id, auth_flow, node_id, project,
    project_id, scope, session, session_id,
};
use casement_domain::{CredentialId, ProfileId};
use parking_lot::Mutex;
use secrecy::SecretString;
use time::Duration;
use ulid::Ulid;

use super::site::{Done, Site};
use crate::support::{Rows, World};

/// The stored connection and its flows.
pub(super) struct Store {
    pub(super) connection: AuthConnection,
    pub(super) flow: Flow,
    pub(super) ends: Vec<FlowEnd>,
    pub(super) begun: Vec<Flow>,
    /// The answers to requests to save a profile, the last one first. When none is left, the answer is yes.
    pub(super) let_saves: Vec<ProfileSavePermission>,
    pub(super) deleted: bool,
}

/// The initial state of a login.
pub(super) struct Scenario {
    pub(super) flow: Flow,
    pub(super) connection: AuthConnection,
    pub(super) credential: Option<(Credential, BTreeMap<String, String>)>,
    pub(super) external: MockExternalCredentials,
    pub(super) sessions: Vec<Session>,
    pub(super) let_saves: Vec<ProfileSavePermission>,
}

pub(super) struct LoginRun {
    pub(super) runner: FlowRunner,
    pub(super) connections: AuthConnections,
    pub(super) store: Arc<Mutex<Store>>,
    pub(super) done: Arc<Mutex<Done>>,
    pub(super) pictures: Arc<Mutex<usize>>,
    pub(super) clock: Arc<FixedClock>,
    pub(super) rows: Rows,
    pub(super) phase: PagePhase,
}

pub(super) fn active() -> Session {
    let mut active = session(1);
    let profile = ProfileId::from_ulid(Ulid::from_parts(11, 1));
    active.shape.profile = Some(LoadedProfile { id: profile, version: None, save_changes: false });
    active
}

impl Scenario {
    /// Creates the login of a person with a running browser.
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

    pub(super) fn with_ann(self) -> Self {
        self.with_values(&[("username", "ann"), ("password", "right")])
    }

    pub(super) fn at(
        self,
        shows: impl Fn(&Done) -> Result<Reading, LoginPageError> + Send + Sync + 'static,
        takes: impl Fn(&Done, &Act) -> Result<(), LoginPageError> + Send + Sync + 'static,
    ) -> LoginRun {
        let clock = Arc::new(FixedClock::default());
        let mut world = World { clock: clock.clone(), ..World::default() };
        let rows = world.keep_sessions(self.sessions);
        world.connections.expect_close().return_const(());
        world.engine.expect_end().returning(|_| Ok(()));
        world.browsers.expect_forget().returning(|_| Ok(()));
        let cases = world.build();

        let store = Store {
            connection: self.connection,
            flow: self.flow,
            ends: Vec::new(),
            begun: Vec::new(),
            let_saves: self.let_saves,
            deleted: false,
        };
        let store = Arc::new(Mutex::new(store));
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
            connections: Arc::new(repository(&store)),
            credentials: credentials.clone(),
            external: Arc::new(self.external),
            profiles: Profiles::new(profiles, clock.clone(), ids.clone(), 7),
            proxies: ProxyRouting::none(),
            sessions: cases.sessions,
            notifier: Arc::new(MockFlowChangeNotifier::new()),
            sealer: Arc::new(PlainSealer),
            entropy: ids.clone(),
            clock: clock.clone(),
            ids: ids.clone(),
            max: 7,
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
            ReplayLimits { most_bytes: 1, retention: Duration::days(1) },
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
                    max: 9,
                }),
                replays: Replays::new(
                    Arc::new(MockReplayMachine::new()),
                    videos,
                    SessionOperations::new(
                        Activity::new(clock.clone(), clock.clone()),
                        Arc::new(ConfiguredEngines::local()),
                    ),
                    ids,
                ),
                pictures: Arc::new(shots),
            },
        );
        LoginRun { runner, connections, store, done, pictures, clock, rows, phase: PagePhase::default() }
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
        totp: None,
        created_at: NOON,
        updated_at: NOON,
    }
}

/// Returns a mock that stores one connection and its flow like the database.
pub(super) fn repository(store: &Arc<Mutex<Store>>) -> MockAuthConnectionRepository {
    let mut mock = MockAuthConnectionRepository::new();
    fn stored(store: &mut Store, flow: &Flow) -> bool {
        let fresh = flow.revision == store.flow.revision && store.flow.status == FlowStatus::InProgress;
        if fresh {
            store.flow = Flow { revision: flow.revision + 1, ..flow.clone() };
        }
        fresh
    }
    let found = |store: &Store| {
        let flow = Some(Box::new(store.flow.clone())).filter(|flow| flow.kind != FlowKind::HealthCheck);
        (!store.deleted).then(|| AuthConnection { flow, ..store.connection.clone() })
    };
    let of = store.clone();
    mock.expect_any().returning(move |_| Ok(found(&of.lock())));
    let of = store.clone();
    mock.expect_find().returning(move |_, _| Ok(found(&of.lock())));
    let of = store.clone();
    mock.expect_flow().returning(move |_| Ok(Some(of.lock().flow.clone())));
    let of = store.clone();
    mock.expect_put().returning(move |flow| Ok(stored(&mut of.lock(), flow)));
    let of = store.clone();
    mock.expect_end().returning(move |flow, end| {
        let mut store = of.lock();
        if store.deleted || !stored(&mut store, flow) {
            return Ok(false);
        }
        store.connection.status = end.status.unwrap_or(store.connection.status);
        store.connection.needs = end.needs.clone().or_else(|| store.connection.needs.clone());
        store.ends.push(end.clone());
        Ok(true)
    });
    let of = store.clone();
    mock.expect_begin().returning(move |flow| {
        of.lock().begun.push(flow.clone());
        Ok(FlowBegun::Yes)
    });
    let of = store.clone();
    mock.expect_permit_save()
        .returning(move |_, _| Ok(of.lock().let_saves.pop().unwrap_or(ProfileSavePermission::Yes)));
    let of = store.clone();
    mock.expect_closed().returning(move |_| {
        of.lock().flow.open = false;
        Ok(())
    });
    mock
}

impl LoginRun {
    /// Runs until the flow waits for a person or has ended, and returns the flow.
    pub(super) async fn run(&mut self) -> Flow {
        // The number of successive readings of a waiting page that stored nothing.
        let mut readings = 0;
        for _ in 0..2000 {
            let before = self.flow().revision;
            let next = self.runner.step(self.flow().id, &mut self.phase).await.expect("a step");
            let flow = self.flow();
            readings = if flow.is_awaiting() && flow.revision == before { readings + 1 } else { 0 };
            match next {
                Next::Done => return flow,
                Next::Step => {}
                Next::Wait(_) if readings >= 8 => return flow,
                Next::Wait(at) => self.clock.set(at),
            }
        }
        panic!("it never comes to anything: {:?}", self.flow());
    }

    pub(super) async fn submit(&mut self, values: &[(&str, &str)]) -> Flow {
        let values = values.iter().map(|(id, value)| ((*id).to_owned(), SecretString::from(*value))).collect();
        let input = SubmitRequest { field_values: Some(values), ..SubmitRequest::default() };
        let id = auth_connection_id(1).to_string();
        self.connections.submit(&scope(), &id, input).await.expect("taken");
        self.run().await
    }

    pub(super) fn flow(&self) -> Flow {
        self.store.lock().flow.clone()
    }

    pub(super) fn done<T>(&self, of: impl FnOnce(&Done) -> T) -> T {
        of(&self.done.lock())
    }

    pub(super) fn last_end(&self) -> FlowEnd {
        self.store.lock().ends.last().cloned().expect("it has ended")
    }
}

pub(super) fn why(flow: &Flow) -> (FlowStatus, Option<FlowError>) {
    (flow.status, flow.failure.as_ref().map(|failure| failure.code))
}

pub(super) const fn failed(code: FlowError) -> (FlowStatus, Option<FlowError>) {
    (FlowStatus::Failed, Some(code))
}

impl LoginRun {
    pub(super) fn clock_since_noon(&self) -> Duration {
        use casement_domain::Clock as _;
        self.clock.now() - NOON
    }
}
