//! The support of the tests of use cases: a mock of every port, and sessions in memory.

use std::collections::HashMap;
use std::sync::Arc;

use casement_domain::access::Scope;
use casement_domain::browser::{
    Browser, BrowserState, EngineError, EngineFault, Installation, MockBrowserEngine, MockBrowserRepository,
    MockSpareBrowsers, Shape,
};
use casement_domain::engine::ConfiguredEngines;
use casement_domain::extension::MockExtensionRepository;
use casement_domain::node::MockPeers;
use casement_domain::pool::{
    Leases, MockPoolRepository, MockTicketNotifier, MockWaitQueue, Pool, PoolDeps, PoolFiller, Pools,
};
use casement_domain::profile::SessionProfiles;
use casement_domain::project::{Project, ProjectStatus};
use casement_domain::proxy::ProxyRouting;
use casement_domain::replay::SessionReplays;
use casement_domain::session::{
    Activity, Created, EndReason, MockConnections, MockPoolWake, MockSessionRepository, Session, SessionDeps,
    SessionState, Sessions,
};
use casement_domain::telemetry::{MockRecorder, NoRecorder, Recorder};
use casement_domain::telemetry_destination::MockTelemetryDestinationRepository;
use casement_domain::testing::{CountingIds, FixedClock, NOON, browser_id, node_id, pool_id, project, scope};
use casement_domain::{BrowserId, NodeId, Replaced, SessionId, StoreError};
use parking_lot::Mutex;
use ulid::Ulid;

/// Mocks of all ports. A call that a test does not expect fails the test.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) sessions: MockSessionRepository,
    pub(crate) browsers: MockBrowserRepository,
    pub(crate) engine: MockBrowserEngine,
    pub(crate) extensions: MockExtensionRepository,
    pub(crate) spares: MockSpareBrowsers,
    pub(crate) peers: MockPeers,
    pub(crate) connections: MockConnections,
    pub(crate) wake: MockPoolWake,
    pub(crate) pools: MockPoolRepository,
    pub(crate) wait_queue: MockWaitQueue,
    pub(crate) tickets: MockTicketNotifier,
    pub(crate) telemetry_destinations: MockTelemetryDestinationRepository,
    /// The recorder of telemetry; `None`: nothing is recorded.
    pub(crate) recorder: Option<MockRecorder>,
    /// The profiles; `None`: an installation without profiles.
    pub(crate) profiles: Option<SessionProfiles>,
    /// The routing through proxies; `None`: an installation without proxies.
    pub(crate) proxies: Option<ProxyRouting>,
    /// The recordings; `None`: an installation without recordings.
    pub(crate) replays: Option<SessionReplays>,
    /// The engines; `None`: the local one only.
    pub(crate) engines: Option<ConfiguredEngines>,
    pub(crate) clock: Arc<FixedClock>,
}

/// The use cases on the mocks of a [`World`].
pub(crate) struct UseCases {
    pub(crate) sessions: Sessions,
    pub(crate) leases: Leases,
    pub(crate) pools: Pools,
    pub(crate) filler: PoolFiller,
    pub(crate) activity: Activity,
    pub(crate) clock: Arc<FixedClock>,
}

impl World {
    pub(crate) fn build(mut self) -> UseCases {
        self.connections.expect_ended().return_const(());
        let clock = self.clock;
        let ids = Arc::new(CountingIds::default());
        let activity = Activity::new(clock.clone(), clock.clone());
        let (session_rows, browsers) = (Arc::new(self.sessions), Arc::new(self.browsers));
        let (engine, wake) = (Arc::new(self.engine), Arc::new(self.wake));
        let extensions = Arc::new(self.extensions);
        let proxies = self.proxies.unwrap_or_else(ProxyRouting::none);
        let profiles = self.profiles.unwrap_or_else(SessionProfiles::none);
        let recorder: Arc<dyn Recorder> = match self.recorder {
            Some(mock) => Arc::new(mock),
            None => Arc::new(NoRecorder),
        };
        let sessions = Sessions::new(SessionDeps {
            node: node_id(),
            installation: Installation::default(),
            sessions: session_rows.clone(),
            browsers: browsers.clone(),
            engine: engine.clone(),
            engines: Arc::new(self.engines.unwrap_or_else(ConfiguredEngines::local)),
            extensions: extensions.clone(),
            proxies: proxies.clone(),
            profiles: profiles.clone(),
            replays: self.replays.unwrap_or_else(SessionReplays::none),
            spares: Arc::new(self.spares),
            peers: Arc::new(self.peers),
            connections: Arc::new(self.connections),
            pools: wake.clone(),
            activity: activity.clone(),
            recorder,
            telemetry_destinations: Arc::new(self.telemetry_destinations),
            clock: clock.clone(),
            monotonic: clock.clone(),
            ids: ids.clone(),
        });
        let deps = PoolDeps {
            node: node_id(),
            installation: Installation::default(),
            pools: Arc::new(self.pools),
            sessions: session_rows,
            wait_queue: Arc::new(self.wait_queue),
            tickets: Arc::new(self.tickets),
            engine,
            extensions,
            proxies,
            profiles: profiles.clone(),
            wake,
            clock: clock.clone(),
            monotonic: clock.clone(),
            ids,
            max_pools: 7,
        };
        UseCases {
            leases: Leases::new(deps.clone(), sessions.clone()),
            pools: Pools::new(deps.clone(), sessions.clone()),
            filler: PoolFiller::new(deps, browsers, sessions.clone()),
            sessions,
            activity,
            clock,
        }
    }

    /// Stores sessions in memory, where they end by compare-and-set. Returns the rows for the test.
    pub(crate) fn keep_sessions(&mut self, at_first: impl IntoIterator<Item = Session>) -> Rows {
        let rows = Rows(Arc::new(Mutex::new(at_first.into_iter().map(|row| (row.id, row)).collect())));
        let of = rows.clone();
        self.sessions.expect_find().returning(move |id| Ok(of.get(id)));
        let of = rows.clone();
        self.sessions.expect_end().returning(move |current, next| Ok(of.swap(current, next)));
        rows
    }

    /// Like [`keep_sessions`](Self::keep_sessions), without sessions at first, and also stores new ones.
    pub(crate) fn keep_new_sessions(&mut self) -> Rows {
        let rows = self.keep_sessions([]);
        let of = rows.clone();
        self.sessions.expect_create().returning(move |_, session, _| {
            of.put(session.clone());
            Ok(Created::Yes)
        });
        rows
    }

    /// Expects that the browser is cleaned up exactly once: its sandbox ends and its row is deleted.
    pub(crate) fn expect_cleanup(&mut self, browser: BrowserId) {
        self.engine.expect_end().withf(move |id| *id == browser).times(1).returning(|_| Ok(()));
        self.browsers.expect_forget().withf(move |id| *id == browser).times(1).returning(|_| Ok(()));
    }

    /// Expects that the connections of exactly one session are closed once, with this reason.
    pub(crate) fn expect_close(&mut self, session: SessionId, why: EndReason) {
        self.connections
            .expect_close()
            .withf(move |id, reason| (*id, *reason) == (session, why))
            .times(1)
            .return_const(());
    }

    /// Expects that the filler of the first pool is woken this number of times.
    pub(crate) fn expect_wakes(&mut self, times: usize) {
        self.wake.expect_wake().withf(|id| *id == pool_id(1)).times(times).return_const(());
    }

    /// Returns this pool for every name.
    pub(crate) fn has_pool(&mut self, pool: Pool) {
        self.pools.expect_find().returning(move |_, _| Ok(Some(pool.clone())));
    }
}

/// Sessions in memory.
#[derive(Clone)]
pub(crate) struct Rows(Arc<Mutex<HashMap<SessionId, Session>>>);

impl Rows {
    pub(crate) fn get(&self, id: SessionId) -> Option<Session> {
        self.0.lock().get(&id).cloned()
    }

    pub(crate) fn put(&self, session: Session) {
        self.0.lock().insert(session.id, session);
    }

    /// Returns the states of all sessions, oldest first.
    pub(crate) fn states(&self) -> Vec<SessionState> {
        let mut all: Vec<_> = self.0.lock().values().cloned().collect();
        all.sort_by_key(|row| row.id);
        all.into_iter().map(|row| row.state).collect()
    }

    pub(crate) fn swap(&self, current: &Session, next: &Session) -> Replaced {
        let mut rows = self.0.lock();
        match rows.get_mut(&current.id).filter(|row| row.state == current.state) {
            Some(row) => {
                *row = next.clone();
                Replaced::Yes
            }
            None => Replaced::LostRace,
        }
    }
}

/// Returns the shape of a session whose request sets nothing.
pub(crate) fn default_shape() -> Shape {
    Shape { memory: Some(Installation::default().memory.reserve_default()), ..Shape::default() }
}

/// Returns the n-th identifier of [`CountingIds`].
pub(crate) fn nth(n: u128) -> Ulid {
    Ulid::from_parts(0, n)
}

pub(crate) fn archived() -> Scope {
    Scope { project: Project { status: ProjectStatus::Archived, ..project() }, ..scope() }
}

pub(crate) fn hung() -> EngineError {
    EngineError::Failed { fault: EngineFault::BrowserHung, message: "the page does not answer".to_owned() }
}

pub(crate) fn store_down() -> StoreError {
    StoreError::unavailable("test.store", "it was switched off")
}

/// Returns the id of another node than the one under test.
pub(crate) fn other_node() -> NodeId {
    NodeId::from_ulid(Ulid::from_parts(3, 2))
}

/// Returns the n-th browser, of the first pool.
pub(crate) fn pooled_browser(n: u32, state: BrowserState) -> Browser {
    Browser {
        id: browser_id(n),
        node: node_id(),
        pool: Some(pool_id(1)),
        shape: Shape::default(),
        state,
        session: None,
        created_at: NOON,
    }
}
