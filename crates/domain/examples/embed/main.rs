//! Casement's rules with ports of one's own: everything in memory, and an engine that only pretends.
//!
//! `cargo run -p casement-domain --example embed`. A team that embeds the domain writes what stands here and in the two
//! files beside it, against its own database and its own browsers.

mod engine;
mod memory;

use std::error::Error;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use casement_domain::access::Scope;
use casement_domain::extension::NoExtensions;
use casement_domain::name::LabelName;
use casement_domain::organization::Caps;
use casement_domain::page::Page;
use casement_domain::pool::{AcquireInput, Acquired, Leases, PoolDeps, PoolFiller, PoolInput, Pools};
use casement_domain::profile::SessionProfiles;
use casement_domain::project::{Project, ProjectStatus};
use casement_domain::proxy::ProxyRouting;
use casement_domain::replay::SessionReplays;
use casement_domain::session::{Activity, CreateSession, SessionDeps, SessionFilter, Sessions};
use casement_domain::telemetry::NoRecorder;
use casement_domain::{Clock, IdSource, MonotonicClock, MonotonicTime, NodeId, OrganizationId, PoolId, ProjectId};
use time::OffsetDateTime;
use time::macros::datetime;
use ulid::Ulid;

use engine::{NoSpares, Nobody, Pretended};
use memory::Memory;

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, line: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// It is always the same moment. A server asks its system here.
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> OffsetDateTime {
        datetime!(2026-12-24 18:00 UTC)
    }
}

impl MonotonicClock for Stopped {
    fn monotonic_now(&self) -> MonotonicTime {
        MonotonicTime::default()
    }
}

/// Identifiers that count up. A server makes real ULIDs here.
#[derive(Default)]
struct Counting(AtomicU64);

impl IdSource for Counting {
    fn next(&self) -> Ulid {
        Ulid::from_parts(0, u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

/// The use cases, on ports of one's own.
struct Service {
    sessions: Sessions,
    pools: Pools,
    leases: Leases,
    filler: PoolFiller,
}

fn service(memory: &Arc<Memory>, engine: &Arc<Pretended>, ids: &Arc<Counting>) -> Service {
    let node = NodeId::mint(ids.as_ref());
    let clock = Arc::new(Stopped);
    let sessions = Sessions::new(SessionDeps {
        node,
        sessions: memory.clone(),
        browsers: memory.clone(),
        engine: engine.clone(),
        extensions: Arc::new(NoExtensions),
        proxies: ProxyRouting::none(),
        profiles: SessionProfiles::none(),
        replays: SessionReplays::none(),
        spares: Arc::new(NoSpares),
        connections: Arc::new(Nobody),
        pools: Arc::new(Nobody),
        activity: Activity::new(clock.clone(), clock.clone()),
        recorder: Arc::new(NoRecorder),
        clock: clock.clone(),
        monotonic: clock.clone(),
        ids: ids.clone(),
    });
    let deps = PoolDeps {
        node,
        pools: memory.clone(),
        sessions: memory.clone(),
        line: memory.clone(),
        turns: memory.clone(),
        engine: engine.clone(),
        extensions: Arc::new(NoExtensions),
        proxies: ProxyRouting::none(),
        profiles: SessionProfiles::none(),
        wake: Arc::new(Nobody),
        clock: clock.clone(),
        monotonic: clock,
        ids: ids.clone(),
        max_pools: Pools::DEFAULT_MAX_POOLS,
    };
    Service {
        pools: Pools::new(deps.clone(), sessions.clone()),
        leases: Leases::new(deps.clone(), sessions.clone()),
        filler: PoolFiller::new(deps, memory.clone(), sessions.clone()),
        sessions,
    }
}

/// Whose requests these are. A server finds it out from the caller's key, with `ApiKeys` and `Access`.
fn scope(ids: &dyn IdSource) -> Result<Scope, Box<dyn Error + Send + Sync>> {
    let project = Project {
        id: ProjectId::mint(ids),
        organization: OrganizationId::mint(ids),
        name: LabelName::parse(Project::DEFAULT_NAME)?,
        is_default: true,
        status: ProjectStatus::Active,
        caps: Caps { concurrent_sessions: Some(3), ..Caps::default() },
        created_at: Stopped.now(),
        updated_at: Stopped.now(),
    };
    Ok(Scope { project, unscoped: true, organization_wide: true })
}

/// Does what a server does all day, once; returns what happened.
pub(crate) async fn run() -> Result<Vec<String>, Box<dyn Error + Send + Sync>> {
    let log = Log::default();
    let ids = Arc::new(Counting::default());
    let scope = scope(ids.as_ref())?;
    let memory = Arc::new(Memory::new(scope.project.caps));
    let engine = Arc::new(Pretended::new(log.clone()));
    let service = service(&memory, &engine, &ids);

    on_demand(&service, &scope, &log, &engine).await?;
    from_a_pool(&service, &scope, &log).await?;
    Ok(log.lines())
}

async fn on_demand(
    service: &Service,
    scope: &Scope,
    log: &Log,
    engine: &Pretended,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let wish = CreateSession { headless: Some(true), name: Some("demo".to_owned()), ..CreateSession::default() };
    let session = service.sessions.create(scope, wish.clone()).await?;
    log.say(format!("session demo is {}", session.state.as_str()));
    if let Err(refused) = service.sessions.create(scope, wish).await {
        log.say(format!("once more: {refused}"));
    }
    let listed = service.sessions.list(scope, &SessionFilter::default(), Page::parse(None, None)?).await?;
    log.say(format!("sessions: {}", listed.items.len()));
    let picture = service.sessions.screenshot(&session, |_| Ok(None)).await?;
    log.say(format!("the picture has {} bytes", picture.len()));
    service.sessions.delete(scope, "demo").await?;
    log.say(format!("deleted; browsers running: {}", engine.running()));
    Ok(())
}

async fn from_a_pool(service: &Service, scope: &Scope, log: &Log) -> Result<(), Box<dyn Error + Send + Sync>> {
    let wish = PoolInput { size: Some(2), name: Some("warm".to_owned()), ..PoolInput::default() };
    let (pool, _) = service.pools.create(scope, wish).await?;
    log.say("pool warm wishes for 2");
    fill(service, pool.id).await?;
    let first = acquire(service, scope).await?;
    let second = acquire(service, scope).await?;
    let (Acquired::Leased(first), Acquired::Leased(_)) = (first, second) else { return Err("two were warm".into()) };
    log.say("two callers have a browser each");
    let Acquired::Waiting(mut third) = acquire(service, scope).await? else { return Err("none was warm".into()) };
    log.say("the third waits in line");
    let released = async {
        service.leases.release(scope, "warm", &first.id.to_string()).await?;
        log.say("the first gave its browser back");
        fill(service, pool.id).await
    };
    let (third, released) = tokio::join!(service.leases.wait(&mut third), released);
    released?;
    match third? {
        Acquired::Leased(_) => log.say("it was the third one's turn"),
        _ => log.say("nothing for the third"),
    }
    if let Err(refused) = service.pools.delete(scope, "warm", false).await {
        log.say(format!("delete: {refused}"));
    }
    service.pools.delete(scope, "warm", true).await?;
    service.sessions.clear_remains().await?;
    log.say("deleted by force");
    Ok(())
}

async fn acquire(service: &Service, scope: &Scope) -> Result<Acquired, Box<dyn Error + Send + Sync>> {
    Ok(service.leases.acquire(scope, "warm", AcquireInput::default()).await?)
}

/// One look at the pool, and what follows from it. A server does so in a loop, woken by `PoolWake`.
async fn fill(service: &Service, pool: PoolId) -> Result<(), Box<dyn Error + Send + Sync>> {
    let round = service.filler.look(pool).await?;
    for launch in &round.launches {
        service.filler.warm(pool, launch).await?;
    }
    for browser in round.discarded {
        service.sessions.bury(browser).await;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut out = std::io::stdout().lock();
    for line in run().await? {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
