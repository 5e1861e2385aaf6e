//! Embeds the use cases of Casement's domain, with repositories in memory and a fake engine that runs no browsers.
//!
//! `cargo run -p casement-memory --example embed`. A team that embeds the domain writes its own engine and, instead of
//! `casement-memory`, repositories on its own database.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::access::Scope;
use casement_domain::browser::{BrowserEngine, EngineError, HandOut, Launch, Location, Region, Started, Viewport};
use casement_domain::name::LabelName;
use casement_domain::organization::Caps;
use casement_domain::page::Page;
use casement_domain::permission::Permissions;
use casement_domain::pool::{AcquireRequest, Acquired, PoolRequest};
use casement_domain::project::{Project, ProjectStatus};
use casement_domain::session::{SessionFilter, SessionRequest};
use casement_domain::testing::{CountingIds, FixedClock, NOON};
use casement_domain::{BrowserId, IdSource, OrganizationId, PoolId, ProjectId};
use casement_memory::{Memory, Service, System};
use parking_lot::Mutex;

type Failure = Box<dyn Error + Send + Sync>;

/// An engine that only records which browsers run, and the events in order.
#[derive(Default)]
struct FakeEngine {
    running: Mutex<BTreeSet<BrowserId>>,
    log: Mutex<Vec<String>>,
}

impl FakeEngine {
    fn say(&self, line: impl Into<String>) {
        self.log.lock().push(line.into());
    }

    fn running(&self) -> BTreeSet<BrowserId> {
        self.running.lock().clone()
    }

    fn check(&self, id: BrowserId) -> Result<(), EngineError> {
        if self.is_known(id) { Ok(()) } else { Err(EngineError::NotRunning(id)) }
    }
}

#[async_trait]
impl BrowserEngine for FakeEngine {
    async fn start(&self, launch: &Launch) -> Result<Started, EngineError> {
        self.running.lock().insert(launch.id);
        self.say(if launch.shape.headless { "a headless browser started" } else { "a headful browser started" });
        Ok(Started { version: "Fake/1.0".to_owned(), stages: vec![] })
    }

    async fn hand_out(&self, id: BrowserId, _to: HandOut) -> Result<(), EngineError> {
        self.check(id)
    }

    async fn set_viewport(&self, id: BrowserId, _viewport: Viewport) -> Result<(), EngineError> {
        self.check(id)
    }

    async fn restart_with_viewport(&self, id: BrowserId, _viewport: Viewport) -> Result<(), EngineError> {
        self.check(id)
    }

    async fn has_location(&self, id: BrowserId, _location: Location) -> Result<bool, EngineError> {
        self.check(id).map(|()| true)
    }

    async fn restart_with_location(&self, id: BrowserId, _location: Location) -> Result<(), EngineError> {
        self.check(id)
    }

    async fn is_recording(&self, id: BrowserId) -> Result<bool, EngineError> {
        self.check(id).map(|()| false)
    }

    async fn screenshot(&self, id: BrowserId, _: Viewport, _: Option<Region>) -> Result<Vec<u8>, EngineError> {
        self.check(id).map(|()| b"\x89PNG\r\n\x1a\n".to_vec())
    }

    fn is_known(&self, id: BrowserId) -> bool {
        self.running().contains(&id)
    }

    async fn end(&self, id: BrowserId) -> Result<(), EngineError> {
        if self.running.lock().remove(&id) {
            self.say("a browser ended");
        }
        Ok(())
    }
}

/// Returns the scope of all requests here. A server derives it from the caller's key, with `ApiKeys` and `Access`.
fn scope(ids: &dyn IdSource) -> Result<Scope, Failure> {
    let project = Project {
        id: ProjectId::mint(ids),
        organization: OrganizationId::mint(ids),
        name: LabelName::parse(Project::DEFAULT_NAME)?,
        is_default: true,
        status: ProjectStatus::Active,
        caps: Caps { concurrent_sessions: Some(3), ..Caps::default() },
        created_at: NOON,
        updated_at: NOON,
    };
    Ok(Scope { project, unscoped: true, organization_wide: true, permissions: Permissions::ALL })
}

/// Creates, lists and deletes a session, then leases from a pool. Returns the recorded events.
pub(crate) async fn run() -> Result<Vec<String>, Failure> {
    let (engine, ids, clock) =
        (Arc::<FakeEngine>::default(), Arc::<CountingIds>::default(), Arc::<FixedClock>::default());
    let scope = scope(ids.as_ref())?;
    let memory = Memory::new(scope.project.caps, clock.clone());
    let service = Service::new(&memory, engine.clone(), System { clock: clock.clone(), monotonic: clock, ids });
    on_demand(&service, &scope, &engine).await?;
    from_a_pool(&service, &scope, &engine).await?;
    let log = engine.log.lock().clone();
    Ok(log)
}

async fn on_demand(service: &Service, scope: &Scope, engine: &FakeEngine) -> Result<(), Failure> {
    let request = SessionRequest { headless: Some(true), name: Some("demo".to_owned()), ..SessionRequest::default() };
    let session = service.sessions.create(scope, request.clone()).await?;
    engine.say(format!("session demo is {}", session.state.as_str()));
    if let Err(refused) = service.sessions.create(scope, request).await {
        engine.say(format!("once more: {refused}"));
    }
    let listed = service.sessions.list(scope, &SessionFilter::default(), Page::parse(None, None)?).await?;
    engine.say(format!("sessions: {}", listed.items.len()));
    let picture = service.sessions.screenshot(&session, |_| Ok(None)).await?;
    engine.say(format!("the picture has {} bytes", picture.len()));
    service.sessions.delete(scope, "demo").await?;
    engine.say(format!("deleted; browsers running: {}", engine.running().len()));
    Ok(())
}

async fn from_a_pool(service: &Service, scope: &Scope, engine: &FakeEngine) -> Result<(), Failure> {
    let request = PoolRequest { size: Some(2), name: Some("warm".to_owned()), ..PoolRequest::default() };
    let (pool, _) = service.pools.create(scope, request).await?;
    engine.say("pool warm wants 2");
    fill(service, pool.id).await?;
    let first = acquire(service, scope).await?;
    let second = acquire(service, scope).await?;
    let (Acquired::Leased(first), Acquired::Leased(_)) = (first, second) else { return Err("two were warm".into()) };
    engine.say("two callers have a browser each");
    let Acquired::Waiting(mut third) = acquire(service, scope).await? else { return Err("none was warm".into()) };
    engine.say("the third waits");
    let released = async {
        service.leases.release(scope, "warm", &first.id.to_string()).await?;
        engine.say("the first gave its browser back");
        fill(service, pool.id).await
    };
    let (third, released) = tokio::join!(service.leases.wait(&mut third), released);
    released?;
    match third? {
        Acquired::Leased(_) => engine.say("the third has a browser"),
        _ => engine.say("nothing for the third"),
    }
    if let Err(refused) = service.pools.delete(scope, "warm", false).await {
        engine.say(format!("delete: {refused}"));
    }
    service.pools.delete(scope, "warm", true).await?;
    service.sessions.clean_up_pending().await?;
    engine.say("deleted by force");
    Ok(())
}

async fn acquire(service: &Service, scope: &Scope) -> Result<Acquired, Failure> {
    Ok(service.leases.acquire(scope, "warm", AcquireRequest::default()).await?)
}

/// Checks the pool once and starts its missing browsers. A server does so in a background job, woken by `PoolWake`.
async fn fill(service: &Service, pool: PoolId) -> Result<(), Failure> {
    let round = service.filler.look(pool).await?;
    for launch in &round.launches {
        service.filler.warm(pool, launch).await?;
    }
    for browser in round.discarded {
        service.sessions.clean_up(browser).await;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for line in run().await? {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
