//! Pools: limits, lead, filling, deletion.

use casement_domain::browser::{Browser, BrowserState};
use casement_domain::engine::EngineName;
use casement_domain::organization::{Caps, Limit, Organization};
use casement_domain::page::Page;
use casement_domain::pool::{
    Generation, Growth, ImmediateLease, Pool, PoolCounts, PoolDeleted, PoolFiller, PoolFilter, PoolRepository,
    PoolStored, QueueEntered, TicketOutcome, WaitQueue,
};
use casement_domain::session::{Created, IdOrName, Session, SessionEvent, SessionRepository as _, SessionState};
use casement_domain::testing::{self, NOON};
use casement_domain::{PoolId, Replaced};
use pretty_assertions::assert_eq;

use crate::support::TestResult;
use crate::world::{Fault, World, lease, other_node, place, seconds, ticket_id, warming};

async fn store(world: &World, pool: &Pool) -> Result<PoolStored, Fault> {
    Ok(world.pools.create(testing::organization_id(), pool, 3).await?)
}

#[tokio::test]
async fn a_pool_is_found_by_id_and_by_name_and_listed_with_what_it_has() -> TestResult {
    let world = World::new().await?;
    let pool = testing::pool(2).name("Nightly").build();
    assert_eq!(store(&world, &pool).await?, PoolStored::Yes);
    world.ready(1).await?;
    world.ready(2).await?;
    assert!(matches!(world.wait_queue.take_now(pool.id, &lease(1), NOON).await?, ImmediateLease::Leased(_)));

    let project = testing::project_id();
    assert_eq!(world.pools.find(project, &IdOrName::Id(pool.id)).await?, Some(pool.clone()));
    assert_eq!(world.pools.find(project, &IdOrName::Name("NIGHTLY".to_owned())).await?, Some(pool.clone()));
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(pool.clone()));
    let next = world.pools.find_with_next(project, &IdOrName::Name("NIGHTLY".to_owned()), testing::node_id()).await?;
    assert_eq!(next, Some((pool.clone(), Some(testing::browser_id(2)))), "the first is leased");
    let page = Page { limit: 20, offset: 0 };
    for (filter, found) in [
        (PoolFilter::default(), true),
        (PoolFilter { name: Some("nightly".to_owned()), query: None, ..PoolFilter::default() }, true),
        (PoolFilter { name: Some("night".to_owned()), query: None, ..PoolFilter::default() }, false),
        (PoolFilter { name: None, query: Some("IGHT".to_owned()), ..PoolFilter::default() }, true),
        (PoolFilter { name: None, query: Some("%".to_owned()), ..PoolFilter::default() }, false),
    ] {
        let listed = world.pools.list(project, &filter, page).await?.items;
        let expected = if found { vec![(pool.clone(), PoolCounts { available: 1, acquired: 1 })] } else { vec![] };
        assert_eq!(listed, expected, "{filter:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_browser_that_is_known_to_come_next_is_the_one_that_is_leased() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(2).await?;
    let find =
        async || world.pools.find_with_next(testing::project_id(), &IdOrName::Id(pool.id), testing::node_id()).await;
    assert_eq!(find().await?, Some((pool.clone(), None)));
    world.ready(1).await?;
    world.ready(2).await?;
    for n in 1..=2 {
        let Some((_, Some(next))) = find().await? else { return Err("two browsers were idle".into()) };
        let ImmediateLease::Leased(session) = world.wait_queue.take_now(pool.id, &lease(n), NOON).await? else {
            return Err("two browsers were idle".into());
        };
        assert_eq!(session.browser, Some(next));
    }
    assert_eq!(find().await?, Some((pool.clone(), None)));
    let unknown = IdOrName::Name("none".to_owned());
    assert_eq!(world.pools.find_with_next(testing::project_id(), &unknown, testing::node_id()).await?, None);
    Ok(())
}

#[tokio::test]
async fn sizes_count_against_the_limits_and_names_are_unique() -> TestResult {
    let caps = Caps { concurrent_sessions: Some(10), pooled_sessions: Some(4), concurrent_invocations: None };
    let world = World::of(Organization { caps, ..testing::organization() }).await?;
    let first = testing::pool(3).name("one").build();
    assert_eq!(store(&world, &first).await?, PoolStored::Yes);
    let same_name = testing::pool(1).id(testing::pool_id(2)).name("ONE").build();
    assert_eq!(store(&world, &same_name).await?, PoolStored::NameTaken);
    let too_large = testing::pool(2).id(testing::pool_id(2)).build();
    let refused = store(&world, &too_large).await?;
    assert!(matches!(&refused, PoolStored::LimitExceeded(l) if l.limit == Limit::OrganizationPooled), "{refused:?}");

    let grow = |size| {
        let mut next = first.clone();
        next.config.size = size;
        next.updated_at = seconds(1);
        next
    };
    let replaced = world.replace(&first, &grow(5)).await?;
    assert!(matches!(replaced, PoolStored::LimitExceeded(_)), "{replaced:?}");
    assert_eq!(world.replace(&first, &grow(4)).await?, PoolStored::Yes);
    let stale = world.replace(&first, &grow(3)).await?;
    assert_eq!(stale, PoolStored::Gone, "it has changed since");
    assert_eq!(world.pools.find_by_id(first.id).await?, Some(grow(4)));
    Ok(())
}

/// Returns the first pool, with browsers of a WebDriver server.
fn of_grid(size: u32) -> Result<Pool, Fault> {
    let mut pool = testing::pool(size).build();
    pool.config.shape.engine = EngineName::parse("grid").map_err(|bad| bad.to_string())?;
    Ok(pool)
}

#[tokio::test]
async fn the_engine_of_a_pool_is_that_of_its_browsers_and_of_their_leases() -> TestResult {
    let world = World::new().await?;
    let pool = of_grid(3)?;
    assert_eq!(store(&world, &pool).await?, PoolStored::Yes);
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(pool.clone()));
    for n in 1..=2 {
        let browser = Browser { shape: pool.config.shape.clone(), ..warming(n) };
        assert_eq!(world.pools.warm(&browser, pool.generation).await?, Replaced::Yes);
        assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    }
    let ImmediateLease::Leased(session) = world.wait_queue.take_now(pool.id, &lease(1), NOON).await? else {
        return Err("two browsers were idle".into());
    };
    assert_eq!(session.shape, pool.config.shape);
    assert_eq!(world.sessions.find(session.id).await?, Some(*session));
    // A pool that moves to another engine begins a new generation, so that none of the others is leased.
    let moved = Pool { updated_at: seconds(1), ..testing::pool(3).build() };
    let (stored, discarded) = world.pools.replace(testing::organization_id(), &pool, &moved, true).await?;
    assert_eq!((stored, discarded), (PoolStored::Yes, vec![testing::browser_id(2)]));
    assert_eq!(world.wait_queue.take_now(pool.id, &lease(2), NOON).await?, ImmediateLease::Busy);
    Ok(())
}

#[tokio::test]
async fn a_waiter_gets_a_browser_of_the_engine_of_its_pool() -> TestResult {
    let world = World::new().await?;
    let pool = of_grid(1)?;
    assert_eq!(store(&world, &pool).await?, PoolStored::Yes);
    let entered = world.wait_queue.enter(&place(1, testing::node_id()), NOON).await?;
    assert!(matches!(entered, QueueEntered::Yes(_)), "{entered:?}");
    let browser = Browser { shape: pool.config.shape.clone(), ..warming(1) };
    assert_eq!(world.pools.warm(&browser, pool.generation).await?, Replaced::Yes);
    assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    let TicketOutcome::Granted(session) = world.wait_queue.outcome(ticket_id(1)).await? else {
        return Err("the browser was not granted".into());
    };
    assert_eq!(session.shape, pool.config.shape);
    Ok(())
}

#[tokio::test]
async fn why_a_pool_cannot_be_filled_is_stored_and_a_change_of_the_pool_clears_it() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    let reason = Some("no room".to_owned());
    world.pools.set_blocked(pool.id, reason.clone()).await?;
    let blocked = Pool { blocked_reason: reason, ..pool.clone() };
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(blocked.clone()), "nothing else has changed");
    world.pools.set_blocked(pool.id, None).await?;
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(pool.clone()));
    world.pools.set_blocked(pool.id, blocked.blocked_reason.clone()).await?;
    let next = Pool { updated_at: seconds(1), ..pool.clone() };
    assert_eq!(world.replace(&blocked, &next).await?, PoolStored::Yes);
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(next));
    Ok(())
}

/// Creates a session on demand.
async fn on_demand(world: &World, n: u32) -> Result<Created, Fault> {
    let session = Session { state: SessionState::Starting, browser: None, ..testing::session(n) };
    Ok(world.sessions.create(testing::organization_id(), &session, None).await?)
}

async fn limited_to(sessions: u32) -> Result<World, Fault> {
    let caps = Caps { concurrent_sessions: Some(sessions), ..Caps::default() };
    World::of(Organization { caps, ..testing::organization() }).await
}

/// Leases the n-th browser of the first pool.
async fn leased(world: &World, pool: &Pool, n: u32) -> Result<Session, Fault> {
    world.ready(n).await?;
    match world.wait_queue.take_now(pool.id, &lease(n), NOON).await? {
        ImmediateLease::Leased(session) => Ok(*session),
        other => Err(format!("{other:?}").into()),
    }
}

#[tokio::test]
async fn what_a_deleted_pool_has_leased_counts_until_it_ends() -> TestResult {
    let world = limited_to(2).await?;
    let (pool, _) = world.pool(2).await?;
    let first = leased(&world, &pool, 1).await?;
    leased(&world, &pool, 2).await?;
    assert_eq!(world.pools.delete(pool.id, true).await?, PoolDeleted::Yes);
    let refused = on_demand(&world, 3).await?;
    assert!(matches!(&refused, Created::LimitExceeded(full) if full.used == 2), "{refused:?}");
    let another = testing::pool(1).id(testing::pool_id(2)).build();
    assert!(matches!(store(&world, &another).await?, PoolStored::LimitExceeded(_)));

    let over = first.on(SessionEvent::Delete, seconds(5))?;
    assert_eq!(world.sessions.end(&first, &over).await?, Replaced::Yes);
    assert_eq!(on_demand(&world, 3).await?, Created::Yes);
    assert!(matches!(on_demand(&world, 4).await?, Created::LimitExceeded(_)), "the second goes on");
    Ok(())
}

#[tokio::test]
async fn what_a_pool_has_beyond_its_new_size_counts_until_it_ends() -> TestResult {
    let world = limited_to(3).await?;
    let (pool, _) = world.pool(3).await?;
    leased(&world, &pool, 1).await?;
    world.ready(2).await?;
    world.ready(3).await?;
    let resized = |size, at| {
        let mut next = pool.clone();
        (next.config.size, next.updated_at) = (size, seconds(at));
        next
    };
    let replace = async |current: &Pool, next: &Pool| world.replace(current, next).await;
    assert_eq!(replace(&pool, &resized(1, 1)).await?, PoolStored::Yes);
    assert!(matches!(on_demand(&world, 4).await?, Created::LimitExceeded(_)), "the idle ones can still be leased");
    assert_eq!(replace(&resized(1, 1), &resized(3, 2)).await?, PoolStored::Yes, "they were never more than three");
    assert_eq!(replace(&resized(3, 2), &resized(1, 3)).await?, PoolStored::Yes);
    assert_eq!(world.pools.flush(pool.id, NOON).await?.len(), 2);
    assert_eq!(on_demand(&world, 4).await?, Created::Yes);
    assert!(matches!(replace(&resized(1, 3), &resized(3, 4)).await?, PoolStored::LimitExceeded(_)));
    Ok(())
}

#[tokio::test]
async fn a_project_has_no_more_pools_than_it_may() -> TestResult {
    let world = World::new().await?;
    for n in 1..=3 {
        assert_eq!(store(&world, &testing::pool(1).id(testing::pool_id(n)).build()).await?, PoolStored::Yes);
    }
    let refused = store(&world, &testing::pool(1).id(testing::pool_id(4)).build()).await?;
    assert!(matches!(&refused, PoolStored::LimitExceeded(l) if l.limit == Limit::ProjectPools), "{refused:?}");
    assert_eq!(world.pools.all().await?, (1..=3).map(testing::pool_id).collect::<Vec<PoolId>>());
    Ok(())
}

#[tokio::test]
async fn one_node_leads_and_a_later_leader_fences_off_the_earlier() -> TestResult {
    let world = World::new().await?;
    let (pool, fence) = world.pool(2).await?;
    assert_eq!(world.pools.lead(pool.id, other_node(), PoolFiller::LEAD).await?, None);
    assert_eq!(world.pools.lead(pool.id, testing::node_id(), PoolFiller::LEAD).await?, Some(fence), "renewed");
    world.db.execute("UPDATE browser_pools SET lease_until = now()").await?;
    world.pools.renew_leads(other_node(), PoolFiller::LEAD).await?;
    assert_eq!(
        world.db.rows("SELECT lease_until > now() FROM browser_pools").await?,
        [["f"]],
        "not the lead of another"
    );
    world.pools.renew_leads(testing::node_id(), PoolFiller::LEAD).await?;
    assert_eq!(world.pools.lead(pool.id, other_node(), PoolFiller::LEAD).await?, None, "all leads of a node at once");
    world.db.execute("UPDATE browser_pools SET lease_until = now()").await?;
    let next = world.pools.lead(pool.id, other_node(), PoolFiller::LEAD).await?.ok_or("no lead")?;
    assert!(next > fence);
    let growth = Growth { allowance: 1, since: seconds(1) };
    assert_eq!(world.pools.grow(&pool, fence, growth).await?, Replaced::LostRace);
    assert_eq!(world.pools.grow(&pool, next, growth).await?, Replaced::Yes);
    assert_eq!(world.pools.find_by_id(pool.id).await?.map(|pool| pool.growth), Some(growth));
    assert_eq!(world.pools.grow(&pool, next, growth).await?, Replaced::LostRace, "read again first");
    Ok(())
}

#[tokio::test]
async fn a_flush_ends_idle_and_warming_browsers_and_lowers_the_allowance_by_the_idle_ones() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(3).await?;
    for n in 1..=2 {
        world.ready(n).await?;
    }
    world.warm(3).await?;
    let mut flushed = world.pools.flush(pool.id, seconds(5)).await?;
    flushed.sort_unstable();
    assert_eq!(flushed, [1, 2, 3].map(testing::browser_id));
    let flushed = world.pools.find_by_id(pool.id).await?.ok_or("gone")?;
    assert_eq!(flushed.growth, Growth { allowance: 1, since: seconds(5) });
    assert_eq!((pool.generation, flushed.generation), (Generation(0), Generation(1)));
    let observed = world.pools.observe(pool.id, testing::node_id()).await?;
    assert_eq!((observed.warming, observed.idle, observed.leased), (0, vec![], 0));
    assert_eq!(world.pools.ready(testing::browser_id(3), NOON).await?, Replaced::LostRace, "it came up too late");
    Ok(())
}

#[tokio::test]
async fn an_update_that_discards_is_one_with_the_end_of_its_browsers() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(2).await?;
    world.ready(1).await?;
    world.warm(2).await?;
    let discarding = async |current: &Pool, next: &Pool| {
        let (stored, mut discarded) = world.pools.replace(testing::organization_id(), current, next, true).await?;
        discarded.sort_unstable();
        Ok::<_, Fault>((stored, discarded))
    };
    let next = Pool { updated_at: seconds(1), ..pool.clone() };
    let stale = Pool { updated_at: seconds(9), ..pool.clone() };
    assert_eq!(discarding(&stale, &next).await?, (PoolStored::Gone, vec![]));
    assert_eq!(world.state_of(testing::browser_id(1)).await?, Some(BrowserState::Idle), "nothing was stored");
    assert_eq!(discarding(&pool, &next).await?, (PoolStored::Yes, [1, 2].map(testing::browser_id).to_vec()));
    let stored = world.pools.find_by_id(pool.id).await?.ok_or("gone")?;
    assert_eq!((stored.generation, stored.updated_at), (Generation(1), seconds(1)));
    assert_eq!(stored.growth, Growth { allowance: 1, since: seconds(1) });
    assert_eq!(world.wait_queue.take_now(pool.id, &lease(1), NOON).await?, ImmediateLease::Busy);
    assert_eq!(world.pools.ready(testing::browser_id(2), NOON).await?, Replaced::LostRace);
    Ok(())
}

#[tokio::test]
async fn what_was_planned_before_a_flush_is_not_begun_after_it() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    assert_eq!(world.pools.flush(pool.id, NOON).await?, []);
    assert_eq!(world.pools.warm(&warming(1), pool.generation).await?, Replaced::LostRace);
    assert_eq!(world.pools.warm(&warming(1), Generation(1)).await?, Replaced::Yes);
    // An update that is based on an earlier read does not revert the flush.
    let renamed = Pool { updated_at: seconds(1), ..pool.clone() };
    assert_eq!(world.replace(&pool, &renamed).await?, PoolStored::Yes);
    assert_eq!(world.pools.find_by_id(pool.id).await?.map(|pool| pool.generation), Some(Generation(1)));
    Ok(())
}

#[tokio::test]
async fn a_lease_that_comes_back_after_a_flush_leaves_its_browser_to_no_one() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    world.ready(1).await?;
    let ImmediateLease::Leased(session) = world.wait_queue.take_now(pool.id, &lease(1), NOON).await? else {
        return Err("nothing was idle".into());
    };
    assert_eq!(world.pools.flush(pool.id, NOON).await?, []);
    let undelivered = session.on(SessionEvent::Undelivered, seconds(1))?;
    assert_eq!(world.sessions.end(&session, &undelivered).await?, Replaced::Yes);
    assert_eq!(world.state_of(testing::browser_id(1)).await?, Some(BrowserState::Ending));
    Ok(())
}

#[tokio::test]
async fn an_idle_browser_of_an_earlier_generation_is_leased_in_no_way() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    world.ready(1).await?;
    // Simulates a lease that returns during a flush.
    world.db.execute("UPDATE browser_pools SET generation = 7").await?;
    assert_eq!(world.wait_queue.take_now(pool.id, &lease(1), NOON).await?, ImmediateLease::Busy);
    let which = IdOrName::Id(pool.id);
    let next = world.pools.find_with_next(testing::project_id(), &which, testing::node_id()).await?;
    assert_eq!(next.map(|(_, next)| next), Some(None));
    assert!(matches!(world.wait_queue.enter(&place(2, testing::node_id()), NOON).await?, QueueEntered::Yes(_)));
    assert_eq!(world.wait_queue.outcome(ticket_id(2)).await?, TicketOutcome::Waiting);
    assert_eq!(world.wait_queue.leave(ticket_id(2)).await?, TicketOutcome::Gone);
    let observed = world.pools.observe(pool.id, testing::node_id()).await?;
    assert_eq!(observed.idle.iter().map(|idle| idle.outdated).collect::<Vec<_>>(), [true], "it is replaced");
    Ok(())
}

#[tokio::test]
async fn a_pool_in_use_is_deleted_only_by_force() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(3).await?;
    world.ready(1).await?;
    assert!(matches!(world.wait_queue.take_now(pool.id, &lease(1), NOON).await?, ImmediateLease::Leased(_)));
    world.ready(2).await?;
    world.warm(3).await?;

    assert_eq!(world.pools.delete(pool.id, false).await?, PoolDeleted::InUse(1));
    assert_eq!(world.state_of(testing::browser_id(2)).await?, Some(BrowserState::Idle), "nothing was changed");
    let left = async || world.sessions.of_deleted_pools(testing::node_id()).await;
    assert_eq!(left().await?, []);
    assert_eq!(world.pools.delete(pool.id, true).await?, PoolDeleted::Yes);
    assert_eq!(world.pools.delete(pool.id, true).await?, PoolDeleted::NotFound);
    assert_eq!(left().await?.iter().map(|left| left.id).collect::<Vec<_>>(), [testing::session_id(1)]);

    assert_eq!(world.state_of(testing::browser_id(1)).await?, Some(BrowserState::Leased));
    assert_eq!(world.state_of(testing::browser_id(2)).await?, Some(BrowserState::Ending));
    assert_eq!(world.pools.ready(testing::browser_id(3), NOON).await?, Replaced::LostRace);
    assert_eq!(world.pools.warm(&warming(4), Generation::default()).await?, Replaced::LostRace);
    assert_eq!(world.wait_queue.take_now(pool.id, &lease(2), NOON).await?, ImmediateLease::PoolGone);
    assert_eq!(world.pools.find_by_id(pool.id).await?, None);
    assert_eq!(store(&world, &testing::pool(1).id(testing::pool_id(2)).build()).await?, PoolStored::Yes);
    Ok(())
}

#[tokio::test]
async fn waiters_of_a_deleted_pool_are_reported() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    assert!(matches!(
        world.wait_queue.enter(&place(1, testing::node_id()), NOON).await?,
        casement_domain::pool::QueueEntered::Yes(_)
    ));
    assert_eq!(world.pools.delete(pool.id, false).await?, PoolDeleted::Yes);
    assert_eq!(world.wait_queue.decided(testing::node_id()).await?, vec![ticket_id(1)]);
    assert_eq!(world.wait_queue.outcome(ticket_id(1)).await?, TicketOutcome::Gone);
    Ok(())
}
