//! Pools over three nodes of one database: acquire, the line, shares, drain and silence.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use casement_domain::NodeId;
use casement_domain::Replaced;
use casement_domain::browser::Browser;
use casement_domain::node::{ClusterEndpoint, Fingerprint, Node, NodeRepository, NodeRoom, NodeRooms};
use casement_domain::pool::{
    Generation, ImmediateLease, LeaseRequest, NodeBrowsers, Pool, PoolRepository, QueueEntered, QueueEntry,
    TicketOutcome, WaitQueue,
};
use casement_domain::session::{Session, SessionEvent, SessionRepository};
use casement_domain::testing::{self, NOON};
use casement_postgres::{Decided, NotificationEvent, Notifications, node_channel};
use futures_util::future::try_join_all;
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, lease, node, other_node, place, seconds, ticket_id, warming};

fn third_node() -> NodeId {
    NodeId::from_ulid(Ulid::from_parts(3, 3))
}

fn nodes() -> [NodeId; 3] {
    [testing::node_id(), other_node(), third_node()]
}

/// Returns a world of three nodes with a pool.
async fn three(size: u32) -> Result<(World, Pool), Fault> {
    let world = World::new().await?;
    world.nodes.announce(&node(third_node())).await?;
    let (pool, _) = world.pool(size).await?;
    Ok((world, pool))
}

/// Makes the n-th browser idle on a node, or grants it to a waiting ticket.
async fn ready(world: &World, n: u32, node: NodeId) -> TestResult {
    let browser = Browser { node, ..warming(n) };
    assert_eq!(world.pools.warm(&browser, Generation::default()).await?, Replaced::Yes);
    assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    Ok(())
}

async fn set_state(world: &World, node: NodeId, state: &str) -> TestResult {
    let id = uuid::Uuid::from_u128(node.ulid().0);
    Ok(world.db.execute(&format!("UPDATE nodes SET state = '{state}' WHERE id = '{id}'")).await?)
}

fn from(n: u32, node: NodeId) -> LeaseRequest {
    LeaseRequest { node, ..lease(n) }
}

async fn take(world: &World, lease: LeaseRequest) -> Result<Option<Session>, Fault> {
    match world.wait_queue.take_now(testing::pool_id(1), &lease, NOON).await? {
        ImmediateLease::Leased(session) => Ok(Some(*session)),
        ImmediateLease::Busy => Ok(None),
        other => Err(format!("{other:?}").into()),
    }
}

async fn taken_node(world: &World, lease: LeaseRequest) -> Result<Option<NodeId>, Fault> {
    Ok(take(world, lease).await?.map(|session| session.node))
}

async fn enter(world: &World, place: &QueueEntry) -> Result<i64, Fault> {
    match world.wait_queue.enter(place, NOON).await? {
        QueueEntered::Yes(position) => Ok(position),
        QueueEntered::PoolGone => Err("the pool is gone".into()),
    }
}

#[tokio::test]
async fn a_browser_of_the_own_node_goes_first_and_then_the_oldest_of_the_others() -> TestResult {
    let (world, _) = three(4).await?;
    let [one, two, three] = nodes();
    for (n, node) in [(1, three), (2, two), (3, one), (4, two)] {
        ready(&world, n, node).await?;
    }
    let mut given = Vec::new();
    for n in 1..=4 {
        given.push(take(&world, from(n, one)).await?.and_then(|session| session.browser));
    }
    assert_eq!(given, [3, 1, 2, 4].map(|n| Some(testing::browser_id(n))));
    assert_eq!(take(&world, from(5, one)).await?, None);
    Ok(())
}

#[tokio::test]
async fn no_browser_of_a_draining_silent_or_avoided_node_is_leased() -> TestResult {
    let (world, _) = three(3).await?;
    let [one, two, three] = nodes();
    for (n, node) in [(1, one), (2, two), (3, three)] {
        ready(&world, n, node).await?;
    }
    set_state(&world, one, "draining").await?;
    world.silence(two).await?;
    assert_eq!(taken_node(&world, LeaseRequest { avoided: vec![three], ..from(1, one) }).await?, None);
    assert_eq!(taken_node(&world, from(1, one)).await?, Some(three));
    assert_eq!(taken_node(&world, from(2, one)).await?, None);
    assert_eq!(taken_node(&world, from(2, two)).await?, Some(two), "a node does not count its own silence");
    set_state(&world, one, "serving").await?;
    assert_eq!(taken_node(&world, from(3, three)).await?, Some(one));
    Ok(())
}

#[tokio::test]
async fn acquires_from_three_nodes_at_once_never_get_one_browser_twice() -> TestResult {
    const EACH: u32 = 10;
    let (world, _) = three(3 * EACH).await?;
    for n in 0..3 * EACH {
        ready(&world, n, nodes()[(n % 3) as usize]).await?;
    }
    let acquires = (0..60).map(|n| take(&world, from(n, nodes()[(n % 3) as usize])));
    let sessions: Vec<Session> = try_join_all(acquires).await?.into_iter().flatten().collect();
    let browsers: std::collections::BTreeSet<_> = sessions.iter().map(|session| session.browser).collect();
    assert_eq!((sessions.len(), browsers.len()), (30, 30));
    Ok(())
}

/// Callers of a node that drains in between go on waiting, and its browser is not granted.
#[tokio::test]
async fn the_line_is_one_line_over_three_nodes_also_while_one_drains() -> TestResult {
    let (world, _) = three(6).await?;
    for n in 1..=6 {
        enter(&world, &place(n, nodes()[(n % 3) as usize])).await?;
    }
    for n in 1..=4 {
        if n == 2 {
            set_state(&world, other_node(), "draining").await?;
            ready(&world, 90, other_node()).await?;
        }
        assert_eq!(world.wait_queue.outcome(ticket_id(n)).await?, TicketOutcome::Waiting, "ticket {n}");
        ready(&world, n, third_node()).await?;
        let TicketOutcome::Granted(session) = world.wait_queue.outcome(ticket_id(n)).await? else {
            return Err(format!("ticket {n} was overtaken").into());
        };
        assert_eq!(session.browser, Some(testing::browser_id(n)));
    }
    set_state(&world, other_node(), "serving").await?;
    // Whoever finds idle browsers beside waiters grants them.
    assert_eq!(world.wait_queue.decided(testing::node_id()).await?, vec![]);
    assert!(matches!(world.wait_queue.outcome(ticket_id(5)).await?, TicketOutcome::Granted(_)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_that_fill_a_pool_at_once_never_exceed_its_allowance() -> TestResult {
    let (world, pool) = three(7).await?;
    let starts = (1..=30).map(|n| {
        let browser = Browser { node: nodes()[(n % 3) as usize], ..warming(n) };
        let world = &world;
        async move { world.pools.warm(&browser, Generation::default()).await }
    });
    let stored = try_join_all(starts).await?.into_iter().filter(|stored| *stored == Replaced::Yes).count();
    assert_eq!(stored, 7);
    world.db.execute("UPDATE browsers SET state = 'ending' WHERE id = (SELECT id FROM browsers LIMIT 1)").await?;
    assert_eq!(world.pools.warm(&warming(31), pool.generation).await?, Replaced::Yes, "ending browsers do not count");
    assert_eq!(world.pools.warm(&warming(32), pool.generation).await?, Replaced::LostRace);
    Ok(())
}

#[tokio::test]
async fn a_node_sees_its_own_browsers_and_the_numbers_of_the_others() -> TestResult {
    let (world, pool) = three(5).await?;
    let [one, two, three] = nodes();
    for (n, node) in [(1, one), (2, two), (3, two), (4, three)] {
        ready(&world, n, node).await?;
    }
    assert_eq!(taken_node(&world, from(1, two)).await?, Some(two));
    world.nodes.announce(&Node { max_sessions: 0, ..node(one) }).await?;
    world.silence(three).await?;
    let observed = world.pools.observe(pool.id, one).await?;
    assert!(observed.takes_none, "its capacity is 0");
    assert_eq!((observed.warming, observed.idle.len(), observed.leased), (0, 1, 0));
    let other = |node, capacity, idle, leased| NodeBrowsers { node, capacity, warming: 0, idle, leased };
    assert_eq!(observed.others, [other(two, Some(10), 1, 1), other(three, None, 1, 0)]);
    let observed = world.pools.observe(pool.id, three).await?;
    assert_eq!((observed.takes_none, observed.capacity), (false, 10), "a node does not count its own silence");
    assert_eq!(observed.others, [other(one, None, 1, 0), other(two, Some(10), 1, 1)]);
    Ok(())
}

#[tokio::test]
async fn decided_tickets_are_reported_after_the_commit_with_the_nodes_of_their_waiters() -> TestResult {
    let (world, pool) = three(4).await?;
    let channels = nodes().map(node_channel).to_vec();
    let mut received = Notifications::listen(world.db.config(), channels);
    assert_eq!(received.next().await, NotificationEvent::Listening);
    let reported = Arc::new(Mutex::new(Vec::<Decided>::new()));
    let noted = reported.clone();
    world.db.database().on_decided(move |decided| noted.lock().expect("no panic").extend(decided));
    let take = || std::mem::take(&mut *reported.lock().expect("no panic"));
    for (n, node) in (1..).zip(nodes()) {
        enter(&world, &place(n, node)).await?;
    }
    assert_eq!(take(), []);
    ready(&world, 1, third_node()).await?;
    assert_eq!(take(), [(testing::node_id(), ticket_id(1))]);
    let TicketOutcome::Granted(first) = world.wait_queue.outcome(ticket_id(1)).await? else {
        return Err("not granted".into());
    };
    let undelivered = first.on(SessionEvent::Undelivered, seconds(1))?;
    assert_eq!(world.sessions.end(&first, &undelivered).await?, Replaced::Yes);
    assert_eq!(take(), [(other_node(), ticket_id(2))], "its browser went to the next");
    assert!(matches!(world.pools.delete(pool.id, true).await?, casement_domain::pool::PoolDeleted::Yes));
    assert_eq!(take(), [(third_node(), ticket_id(3))], "its pool is gone");

    // Nothing else was notified.
    world.db.database().notify_decided(&[(third_node(), ticket_id(3))]).await?;
    let expected =
        NotificationEvent::Notification { channel: node_channel(third_node()), payload: ticket_id(3).to_string() };
    assert_eq!(received.next().await, expected);
    Ok(())
}

#[tokio::test]
async fn the_rooms_of_nodes_count_browsers_and_starting_sessions() -> TestResult {
    let (world, _) = three(4).await?;
    let [one, two, three] = nodes();
    let endpoint = ClusterEndpoint { address: "10.0.0.2:8443".to_owned(), fingerprint: Fingerprint([1; 32]) };
    world.nodes.announce(&Node { cluster: Some(endpoint), limits_sessions: true, ..node(two) }).await?;
    world.silence(three).await?;
    ready(&world, 1, one).await?;
    ready(&world, 2, two).await?;
    ready(&world, 3, two).await?;
    assert_eq!(taken_node(&world, from(1, two)).await?, Some(two));
    let starting =
        Session { state: casement_domain::session::SessionState::Starting, browser: None, ..testing::session(9) };
    let _ = world.sessions.create(testing::organization_id(), &starting, None).await?;
    set_state(&world, two, "draining").await?;
    let rooms = world.nodes.rooms(one).await?;
    let room = |node, is_serving, is_reachable| {
        let limits_sessions = node == two;
        NodeRoom { node, is_serving, is_reachable, places: Some(10), limits_sessions, used: 2 }
    };
    assert_eq!(rooms, [room(one, true, false), room(two, false, true)]);
    let all: BTreeMap<NodeId, u32> =
        world.nodes.rooms(three).await?.into_iter().map(|room| (room.node, room.used)).collect();
    assert_eq!(all, BTreeMap::from([(one, 2), (two, 2), (three, 0)]), "a node does not count its own silence");
    Ok(())
}
