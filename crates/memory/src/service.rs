//! The use cases of sessions and pools on [`Memory`].

use std::sync::Arc;

use casement_domain::browser::{BrowserEngine, Installation, Shape, SpareBrowsers};
use casement_domain::engine::ConfiguredEngines;
use casement_domain::extension::NoExtensions;
use casement_domain::node::NoPeers;
use casement_domain::pool::{Leases, PoolDeps, PoolFiller, Pools};
use casement_domain::profile::SessionProfiles;
use casement_domain::proxy::ProxyRouting;
use casement_domain::replay::SessionReplays;
use casement_domain::session::{Activity, Connections, EndReason, PoolWake, Session, SessionDeps, Sessions};
use casement_domain::telemetry::NoRecorder;
use casement_domain::telemetry_destination::NoTelemetryDestinations;
use casement_domain::{BrowserId, Clock, IdSource, MonotonicClock, NodeId, PoolId, SessionId};

use crate::Memory;

/// The sources of time and identifiers.
#[derive(Clone)]
pub struct System {
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The monotonic clock.
    pub monotonic: Arc<dyn MonotonicClock>,
    /// The source of new identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// The use cases of one node, without proxies, profiles, extensions, replays, telemetry and spares.
pub struct Service {
    /// Creates sessions on demand, and ends any session.
    pub sessions: Sessions,
    /// Manages pools.
    pub pools: Pools,
    /// Leases browsers of pools.
    pub leases: Leases,
    /// Starts the pools' browsers. The caller runs it when a pool has changed.
    pub filler: PoolFiller,
}

impl Service {
    /// Wires the use cases to `memory`, with browsers of `engine`.
    #[must_use]
    pub fn new(memory: &Memory, engine: Arc<dyn BrowserEngine>, system: System) -> Self {
        let System { clock, monotonic, ids } = system;
        let node = NodeId::mint(ids.as_ref());
        let rows = Arc::new(memory.clone());
        let sessions = Sessions::new(SessionDeps {
            node,
            installation: Installation::default(),
            sessions: rows.clone(),
            browsers: rows.clone(),
            engine: engine.clone(),
            engines: Arc::new(ConfiguredEngines::local()),
            extensions: Arc::new(NoExtensions),
            proxies: ProxyRouting::none(),
            profiles: SessionProfiles::none(),
            replays: SessionReplays::none(),
            spares: Arc::new(Nothing),
            peers: Arc::new(NoPeers),
            connections: Arc::new(Nothing),
            pools: Arc::new(Nothing),
            activity: Activity::new(clock.clone(), monotonic.clone()),
            recorder: Arc::new(NoRecorder),
            telemetry_destinations: Arc::new(NoTelemetryDestinations),
            clock: clock.clone(),
            monotonic: monotonic.clone(),
            ids: ids.clone(),
        });
        let deps = PoolDeps {
            node,
            installation: Installation::default(),
            pools: rows.clone(),
            sessions: rows.clone(),
            wait_queue: rows.clone(),
            tickets: rows.clone(),
            engine,
            extensions: Arc::new(NoExtensions),
            proxies: ProxyRouting::none(),
            profiles: SessionProfiles::none(),
            wake: Arc::new(Nothing),
            clock,
            monotonic,
            ids,
            max_pools: Pools::DEFAULT_MAX_POOLS,
        };
        Self {
            pools: Pools::new(deps.clone(), sessions.clone()),
            leases: Leases::new(deps.clone(), sessions.clone()),
            filler: PoolFiller::new(deps, rows, sessions.clone()),
            sessions,
        }
    }
}

/// No spare browsers, no connections to close and no background job to wake.
struct Nothing;

impl SpareBrowsers for Nothing {
    fn take(&self, _shape: &Shape) -> Option<BrowserId> {
        None
    }

    fn put_back(&self, _shape: &Shape, _id: BrowserId) {}
}

impl Connections for Nothing {
    fn close(&self, _session: SessionId, _reason: EndReason) {}

    fn ended(&self, _session: &Session, _reason: EndReason) {}

    fn restarted(&self, _session: SessionId) {}
}

impl PoolWake for Nothing {
    fn wake(&self, _pool: PoolId) {}
}
