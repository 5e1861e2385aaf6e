//! What goes on in the background until the server stops.

use std::sync::Arc;
use std::time::Duration;

use casement_chromium::EngineEvent;
use casement_domain::PoolId;
use casement_domain::node::NodeWatch;
use casement_domain::pool::PoolFiller;
use casement_postgres::{Notifications, node_channel};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ground::Ground;
use super::sessions::Core;
use super::use_cases::UseCases;
use crate::apps::NewsRoom;
use crate::egress::WaysOut;
use crate::loops::{
    AppWork, Housekeeping, PoolLoop, Spares, StartSlots, carry_logins, fill_pools, follow_browsers, hear, keep_audit,
    keep_logins, keep_spares, keep_telemetry, tend_trail,
};
use crate::settings::ServeSettings;
use crate::store::Store;
use crate::system::System;
use crate::{extensions, profiles, proxies, replays};

/// How often the metrics fold what they gathered.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// What the work is told from elsewhere.
pub(super) struct Heard {
    pub(super) events: mpsc::UnboundedReceiver<EngineEvent>,
    pub(super) failed_proxies: mpsc::Receiver<proxies::FailedProxy>,
}

/// The part of the work that is waited for, or that ends by itself.
pub(super) struct Work {
    pub(super) apps: AppWork,
    pub(super) news: NewsRoom,
    pub(super) clearing: JoinHandle<()>,
    /// Ends the heartbeat: while sessions end, no other node may take this one for lost.
    pub(super) beating: CancellationToken,
}

impl Work {
    pub(super) fn begin(
        ground: &Ground,
        core: &Core,
        cases: UseCases,
        heard: Heard,
        looked_at: mpsc::UnboundedSender<PoolId>,
        (settings, store, metrics): (&ServeSettings, &Store, PrometheusHandle),
    ) -> Self {
        let filler = PoolFiller::new(core.pool_deps.clone(), ground.rows.browsers.clone(), core.sessions.clone());
        let (clearing, beating) = keep_house(ground, core, &cases, (store, filler.clone()));
        keep_browsers(ground, core, heard, (filler, looked_at));
        keep_for_a_time(ground, core, settings);
        let stop = || core.stop.child_token();
        tokio::spawn(extensions::sweep(cases.extensions, stop()));
        tokio::spawn(profiles::sweep(cases.profiles, ground.blobs.clone(), stop()));
        tokio::spawn(proxies::keep_checked(cases.proxies, stop()));
        tokio::spawn(cases.auth_news.clone().hear(store.config.clone(), stop()));
        tokio::spawn(carry_logins(cases.logins.clone(), cases.auth_news, stop()));
        tokio::spawn(keep_logins(cases.logins, stop()));
        tokio::spawn(ground.disk.clone().watch(ground.rows.storage_usage.clone(), stop()));
        tokio::spawn(upkeep(metrics, ground.ways_out.clone(), core.spares.clone()));
        let news = cases.apps.room.clone();
        Self { apps: cases.apps.spawn(store), news, clearing, beating }
    }
}

/// The node's own life, and what belongs to no session any more.
fn keep_house(
    ground: &Ground,
    core: &Core,
    cases: &UseCases,
    (store, filler): (&Store, PoolFiller),
) -> (JoinHandle<()>, CancellationToken) {
    let house = Housekeeping {
        node: ground.node,
        nodes: ground.rows.nodes.clone(),
        others: Arc::new(NodeWatch::new(ground.node, ground.rows.nodes.clone(), Arc::new(System))),
        pools: ground.rows.pools.clone(),
        line: ground.rows.line.clone(),
        sessions: core.sessions.clone(),
        runs: cases.apps.runs.clone(),
        leases: core.leases.clone(),
        filler,
        room: core.room.clone(),
        figures: core.figures.clone(),
    };
    let notifications = Notifications::listen(&store.config, vec![node_channel(ground.node)]);
    tokio::spawn(core.stop.clone().run_until_cancelled_owned(hear(notifications, house.clone())));
    let beating = CancellationToken::new();
    tokio::spawn(house.clone().beat(beating.clone()));
    let clearing = tokio::spawn(house.clone().clear(core.remains.clone(), core.stop.child_token()));
    tokio::spawn(house.run(core.stop.child_token()));
    (clearing, beating)
}

/// Browsers that end are noticed, and enough are kept ready.
fn keep_browsers(
    ground: &Ground,
    core: &Core,
    heard: Heard,
    (filler, looked_at): (PoolFiller, mpsc::UnboundedSender<PoolId>),
) {
    let (sessions, spares) = (core.sessions.clone(), core.spares.clone());
    let telling = proxies::tell_failed(heard.failed_proxies, sessions.clone());
    tokio::spawn(core.stop.clone().run_until_cancelled_owned(telling));
    tokio::spawn(follow_browsers(ground.engine.clone(), heard.events, sessions.clone(), spares.clone()));
    let slots = StartSlots::per_core();
    let pool_loop = PoolLoop {
        filler,
        pools: ground.rows.pools.clone(),
        sessions,
        bell: core.bell.clone(),
        slots: slots.clone(),
        figures: core.figures.clone(),
        looked_at,
    };
    tokio::spawn(fill_pools(pool_loop, core.stop.child_token()));
    tokio::spawn(keep_spares(spares, core.port.clone(), slots, core.stop.child_token()));
}

/// What is kept for a time and then forgotten.
fn keep_for_a_time(ground: &Ground, core: &Core, settings: &ServeSettings) {
    let days = |days: u32| time::Duration::days(days.into());
    let stop = || core.stop.child_token();
    tokio::spawn(keep_audit(ground.rows.audit.clone(), days(settings.audit_days), stop()));
    tokio::spawn(tend_trail(core.trail.clone(), stop()));
    tokio::spawn(keep_telemetry(ground.rows.telemetry.clone(), days(settings.telemetry_days), stop()));
    tokio::spawn(replays::sweep(ground.replays.clone(), stop()));
}

async fn upkeep(metrics: PrometheusHandle, ways_out: Arc<WaysOut>, spares: Spares) {
    let mut tick = tokio::time::interval(METRICS_UPKEEP);
    loop {
        tick.tick().await;
        ways_out.measure();
        metrics::gauge!("casement_spare_browsers").set(f64::from(spares.ready()));
        metrics.run_upkeep();
    }
}
