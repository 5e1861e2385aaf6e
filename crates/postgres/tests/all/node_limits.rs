//! The limit of sessions that an operator sets for a node.

use casement_domain::browser::{Browser, BrowserState, Memory, ReservedMemory};
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::pool::{Generation, ImmediateLease, PoolRepository, WaitQueue};
use casement_domain::session::{Created, Session, SessionEvent, SessionRepository, SessionState};
use casement_domain::testing::{self, NOON};
use casement_domain::{NodeId, Replaced};
use casement_postgres::PgSessions;
use futures_util::future::try_join_all;
use pretty_assertions::assert_eq;

use crate::support::TestResult;
use crate::world::{Fault, World, lease, other_node, seconds, warming};

/// Returns the repository of a node with this limit.
fn limited(world: &World, node: NodeId, limit: u32) -> PgSessions {
    PgSessions::new(world.db.database().clone()).on_node(node).limited_to(Some(limit))
}

fn starting(n: u32, node: NodeId) -> Session {
    Session { node, state: SessionState::Starting, browser: None, ..testing::session(n) }
}

async fn create(sessions: &PgSessions, session: &Session) -> Result<Created, Fault> {
    Ok(sessions.create(testing::organization_id(), session, None).await?)
}

fn full(value: u32, used: u32) -> Created {
    Created::LimitExceeded(LimitExceeded { limit: Limit::NodeSessions, value, used, requested: 1 })
}

/// Makes the n-th browser of the pool idle on this node.
async fn ready(world: &World, n: u32) -> TestResult {
    let browser = Browser { node: testing::node_id(), ..warming(n) };
    assert_eq!(world.pools.warm(&browser, Generation::default()).await?, Replaced::Yes);
    assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_creates_at_once_on_two_nodes_fill_each_exactly() -> TestResult {
    let world = World::new().await?;
    let nodes = [testing::node_id(), other_node()];
    let limits = [limited(&world, nodes[0], 3), limited(&world, nodes[1], 5)];
    let creates = (0..60_u32).map(|n| {
        let of = (n % 2) as usize;
        let (sessions, session) = (&limits[of], starting(n + 1, nodes[of]));
        async move { create(sessions, &session).await.map(|created| (of, created)) }
    });
    let created = try_join_all(creates).await?;
    for (of, limit) in [(0, 3), (1, 5)] {
        let mine: Vec<&Created> = created.iter().filter(|(node, _)| *node == of).map(|(_, created)| created).collect();
        assert_eq!(mine.iter().filter(|created| ***created == Created::Yes).count(), limit);
        let refused = full(u32::try_from(limit)?, u32::try_from(limit)?);
        assert_eq!(mine.iter().filter(|created| ***created == refused).count(), 30 - limit);
    }
    Ok(())
}

#[tokio::test]
async fn a_place_is_free_again_when_its_session_has_ended() -> TestResult {
    let world = World::new().await?;
    let sessions = limited(&world, testing::node_id(), 1);
    let draft = starting(1, testing::node_id());
    assert_eq!(create(&sessions, &draft).await?, Created::Yes);
    let active = draft.on(SessionEvent::Ready(testing::browser_id(1)), seconds(1))?;
    let browser = Browser { session: Some(active.id), state: BrowserState::Leased, pool: None, ..warming(1) };
    assert_eq!(sessions.activate(&draft, &active, &browser).await?, Replaced::Yes);
    assert_eq!(create(&sessions, &starting(2, testing::node_id())).await?, full(1, 1));
    let ended = active.on(SessionEvent::Delete, seconds(2))?;
    assert_eq!(sessions.end(&active, &ended).await?, Replaced::Yes);
    assert_eq!(create(&sessions, &starting(3, testing::node_id())).await?, Created::Yes);
    Ok(())
}

#[tokio::test]
async fn browsers_of_pools_take_places_and_are_never_refused_one() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(4).await?;
    let sessions = limited(&world, testing::node_id(), 2);
    ready(&world, 1).await?;
    assert_eq!(create(&sessions, &starting(1, testing::node_id())).await?, Created::Yes);
    for n in 2..=4 {
        ready(&world, n).await?;
    }
    assert_eq!(create(&sessions, &starting(2, testing::node_id())).await?, full(2, 5));
    let leased = world.wait_queue.take_now(pool.id, &lease(3), NOON).await?;
    assert!(matches!(leased, ImmediateLease::Leased(_)), "{leased:?}");
    Ok(())
}

#[tokio::test]
async fn a_session_of_more_memory_takes_several_places() -> TestResult {
    let world = World::new().await?;
    let sessions = limited(&world, testing::node_id(), 5);
    let large = |n| {
        let mut session = starting(n, testing::node_id());
        session.shape.memory = Some(ReservedMemory { limit: Memory { mib: 8192 }, places: 4 });
        session
    };
    assert_eq!(create(&sessions, &starting(1, testing::node_id())).await?, Created::Yes);
    assert_eq!(create(&sessions, &large(2)).await?, Created::Yes);
    assert_eq!(create(&sessions, &starting(3, testing::node_id())).await?, full(5, 5));
    Ok(())
}
