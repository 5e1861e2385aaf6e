//! Keeps the store true: heartbeats, idle clocks, browsers that ended, nodes that are gone, notifications.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use casement_chromium::{Engine, EngineEvent, What, Why};
use casement_domain::invocation::Runs;
use casement_domain::node::{NodeRepository, NodeWatch};
use casement_domain::pool::{Leases, PoolFiller, PoolRepository, WaitingLine};
use casement_domain::session::{SessionEvent, Sessions};
use casement_domain::{BrowserId, Clock, NodeId, PoolId, StoreError, telemetry};
use casement_postgres::{Heard, Notifications};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Spares;
use super::figures::{Line, PoolFigures};
use crate::replays::RemainsBell;
use crate::system::System;
use crate::turns::WaitingRoom;

const TICK: Duration = Duration::from_secs(5);
/// Every so many ticks the slower part: what should have been heard but may have been missed.
const NET_TICKS: u32 = 6;
/// Browsers that are laid to rest at a time.
const BURIALS: usize = 8;
const RETRY: Duration = Duration::from_secs(1);

/// What the housekeeping stands on.
#[derive(Clone)]
pub(crate) struct Housekeeping {
    pub(crate) node: NodeId,
    pub(crate) nodes: Arc<dyn NodeRepository>,
    /// The other nodes.
    pub(crate) others: Arc<NodeWatch>,
    pub(crate) pools: Arc<dyn PoolRepository>,
    pub(crate) line: Arc<dyn WaitingLine>,
    pub(crate) sessions: Sessions,
    pub(crate) runs: Runs,
    pub(crate) leases: Leases,
    pub(crate) filler: PoolFiller,
    pub(crate) room: WaitingRoom,
    pub(crate) figures: PoolFigures,
}

impl Housekeeping {
    /// Runs until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut well = true;
        for count in 0_u32.. {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => {}
            }
            let done = self.tick(count.is_multiple_of(NET_TICKS)).await;
            // Said when it begins and when it ends, not every five seconds.
            match (&done, well) {
                (Err(error), true) => warn!(%error, "the store does not answer; trying again"),
                (Ok(()), false) => info!("the store answers again"),
                _ => {}
            }
            well = done.is_ok();
        }
    }

    /// Says that this node lives, until `stop`; apart from the rest, which may take its time.
    pub(crate) async fn beat(self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            if let Err(error) = self.nodes.heartbeat(self.node).await {
                debug!(%error, "cannot say that this node lives");
            }
        }
    }

    /// Buries browsers whose time is over, until `stop`; apart from the rest, and some at once, for what they leave is kept before,
    /// which takes its time.
    pub(crate) async fn clear(self, bell: RemainsBell, stop: CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut burials = Burials { sessions: self.sessions, at_work: JoinSet::new(), whose: HashMap::new() };
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(done) = burials.at_work.join_next_with_id() => {
                    let id = done.map_or_else(|error| error.id(), |(id, ())| id);
                    burials.whose.remove(&id);
                    // There may be more than could be begun at once.
                    if burials.whose.len() + 1 < BURIALS {
                        continue;
                    }
                }
                _ = tick.tick() => {}
                () = bell.rung() => {}
            }
            if let Err(error) = burials.begin().await {
                debug!(%error, "cannot look for browsers whose time is over");
            }
        }
    }

    async fn tick(&self, net: bool) -> Result<(), StoreError> {
        self.sessions.sweep_idle().await?;
        self.mourn().await?;
        if net {
            self.sessions.check().await?;
            self.filler.clear_lost().await?;
            self.call_the_decided().await?;
        }
        self.measure().await?;
        self.leases.settle().await
    }

    async fn mourn(&self) -> Result<(), StoreError> {
        for node in self.others.lost().await? {
            warn!(%node, "a node is gone; its sessions end");
            self.line.clear(node, System.now()).await?;
            self.sessions.mourn(node).await?;
            self.runs.mourn(node).await?;
        }
        Ok(())
    }

    async fn after_a_silence(&self) -> Result<(), StoreError> {
        self.call_the_decided().await?;
        self.leases.settle().await
    }

    /// The net under lost notifications. A ticket that nobody here expects is of a caller who is gone.
    pub(crate) async fn call_the_decided(&self) -> Result<(), StoreError> {
        for ticket in self.line.decided(self.node).await? {
            if !self.room.call(ticket) {
                self.leases.abandon(ticket).await?;
            }
        }
        Ok(())
    }

    async fn measure(&self) -> Result<(), StoreError> {
        let now = System.now();
        metrics::gauge!("casement_sessions").set(self.sessions.activity().sessions());
        let lines: HashMap<PoolId, _> =
            self.line.lengths().await?.into_iter().map(|(pool, length, since)| (pool, (length, since))).collect();
        let mut figures = Vec::new();
        for pool in self.pools.all().await? {
            let counts = self.pools.counts(pool).await?;
            // Also of a pool for which nobody waits: what was said of a line before is over then.
            let (waiters, since) = lines.get(&pool).copied().unwrap_or((0, now));
            let longest_wait_seconds = (now - since).as_seconds_f64();
            figures
                .push((pool, Line { idle: counts.available, leased: counts.acquired, waiters, longest_wait_seconds }));
        }
        self.figures.measured(figures);
        Ok(())
    }
}

/// Browsers that are being laid to rest.
struct Burials {
    sessions: Sessions,
    at_work: JoinSet<()>,
    whose: HashMap<Id, BrowserId>,
}

impl Burials {
    async fn begin(&mut self) -> Result<(), StoreError> {
        for browser in self.sessions.remains().await? {
            if self.whose.len() >= BURIALS {
                return Ok(());
            }
            if self.whose.values().any(|other| *other == browser.id) {
                continue;
            }
            let (id, sessions) = (browser.id, self.sessions.clone());
            let task = self.at_work.spawn(async move {
                if let Err(error) = sessions.lay_to_rest(&browser).await {
                    debug!(browser = %browser.id, %error, "a browser cannot be buried for now");
                }
            });
            self.whose.insert(task.id(), id);
        }
        Ok(())
    }
}

/// Follows the browsers of this node: one that ended by itself ends its session, or leaves its pool or the reserve.
pub(crate) async fn follow_browsers(
    engine: Engine,
    mut events: mpsc::UnboundedReceiver<EngineEvent>,
    sessions: Sessions,
    spares: Spares,
) {
    while let Some(EngineEvent { browser, what: What::Exited(why) }) = events.recv().await {
        if spares.lost(browser) {
            warn!(%browser, ?why, "a spare browser ended by itself");
            sessions.bury(browser).await;
            continue;
        }
        let event = match why {
            Why::Crashed => SessionEvent::Crash,
            Why::Oom => SessionEvent::OutOfMemory,
            Why::Closed => SessionEvent::BrowserClosed,
            Why::Hung => SessionEvent::BrowserHung,
        };
        warn!(%browser, reason = event.name(), "a browser ended by itself");
        let (sessions, engine) = (sessions.clone(), engine.clone());
        tokio::spawn(async move {
            if why == Why::Oom {
                tell_whom_the_kernel_killed(&engine, &sessions, browser).await;
            }
            while let Err(error) = sessions.browser_lost(browser, event).await {
                warn!(%browser, %error, "cannot note that a browser ended; trying again");
                tokio::time::sleep(RETRY).await;
            }
        });
    }
}

/// In the session's telemetry. Where the agent watches the memory, it is the agent that tells.
async fn tell_whom_the_kernel_killed(engine: &Engine, sessions: &Sessions, browser: BrowserId) {
    let Some(killed) = engine.oom_kill(browser).await else { return };
    let event = telemetry::Event::oom_kill(System.now(), killed.pid, &killed.process, killed.resident_kib);
    if let Err(error) = sessions.note(browser, event).await {
        warn!(%browser, %error, "it is not told whom the kernel killed");
    }
}

/// Hears what other nodes, and this one, decided about tickets in line here.
pub(crate) async fn hear(mut notifications: Notifications, house: Housekeeping) {
    loop {
        match notifications.next().await {
            Heard::Notification { payload, .. } => match payload.parse() {
                Ok(ticket) if house.room.call(ticket) => {}
                // Its caller is gone, and could not say so.
                Ok(ticket) => {
                    let leases = house.leases.clone();
                    tokio::spawn(async move { leases.abandon(ticket).await });
                }
                Err(_) => warn!("heard something that is no ticket"),
            },
            Heard::Listening => {
                if let Err(error) = house.after_a_silence().await {
                    warn!(%error, "cannot look what was decided meanwhile");
                }
            }
        }
    }
}
