//! The wait queue: first come, first served across all nodes, and no browser is leased twice.

use std::collections::HashSet;
use std::sync::Arc;

use casement_domain::audit::{AuditEntry, AuditRepository};
use casement_domain::browser::BrowserState;
use casement_domain::name::SlugName;
use casement_domain::node::UnreachableNodes;
use casement_domain::pool::{
    ImmediateLease, KnownBrowser, LeaseRequest, Pool, PoolRepository, PoolStored, QueueEntered, QueueEntry,
    TicketOutcome, WaitQueue,
};
use casement_domain::project::ProjectRepository;
use casement_domain::session::{EndReason, Session, SessionEvent, SessionRepository, SessionState};
use casement_domain::testing::{self, NOON};
use casement_domain::{Replaced, StoreError};
use casement_postgres::{Database, NotificationEvent, Notifications, PgAudit, PgProjects, PgWaitQueue, node_channel};
use futures_util::future::try_join_all;
use pretty_assertions::assert_eq;
use time::Duration;

use crate::audit::{entry, of, record, records};
use crate::support::{Held, TestResult, until};
use crate::world::{Fault, World, label, lease, other_node, place, seconds, session_numbers, ticket_id};

async fn enter(world: &World, place: &QueueEntry) -> Result<i64, Fault> {
    match world.wait_queue.enter(place, NOON).await? {
        QueueEntered::Yes(position) => Ok(position),
        QueueEntered::PoolGone => Err("the pool is gone".into()),
    }
}

async fn granted(world: &World, n: u32) -> Result<Session, Fault> {
    match world.wait_queue.outcome(ticket_id(n)).await? {
        TicketOutcome::Granted(session) => Ok(*session),
        other => Err(format!("ticket {n}: {other:?}").into()),
    }
}

async fn taken(world: &World, n: u32) -> Result<Session, Fault> {
    match world.wait_queue.take_now(testing::pool_id(1), &lease(n), NOON).await? {
        ImmediateLease::Leased(session) => Ok(*session),
        other => Err(format!("session {n}: {other:?}").into()),
    }
}

/// Returns browser `n` as a caller that has read `pool` knows it.
fn known(pool: &Pool, n: u32) -> KnownBrowser {
    KnownBrowser { browser: testing::browser_id(n), pool: pool.id, unchanged_since: pool.updated_at }
}

#[tokio::test]
async fn an_idle_browser_is_leased_at_once_with_what_the_pool_says() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    assert_eq!(world.wait_queue.take_now(pool.id, &lease(1), NOON).await?, ImmediateLease::Busy);
    world.ready(1).await?;
    let session = taken(&world, 1).await?;
    let expected = Session {
        shape: pool.config.shape.clone(),
        timeout_seconds: pool.config.timeout_seconds,
        ..testing::leased_session(1)
    };
    assert_eq!(session, expected);
    assert_eq!(world.sessions.find(session.id).await?, Some(expected));
    assert_eq!(world.state_of(testing::browser_id(1)).await?, Some(BrowserState::Leased));
    assert_eq!(world.wait_queue.take_now(pool.id, &lease(2), NOON).await?, ImmediateLease::Busy);
    assert_eq!(world.wait_queue.take_now(testing::pool_id(9), &lease(2), NOON).await?, ImmediateLease::PoolGone);
    Ok(())
}

#[tokio::test]
async fn the_record_of_a_lease_is_stored_with_it_or_neither_is() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let (pool, _) = world.pool(2).await?;
    let take = async |n: u32, browser: u32, record: &AuditEntry| {
        Ok::<_, Fault>(world.wait_queue.take_recorded(&known(&pool, browser), &lease(n), record, NOON).await?)
    };
    assert_eq!(take(1, 1, &entry(1)).await?, ImmediateLease::Busy, "there is none");
    world.ready(1).await?;
    world.ready(2).await?;
    world
        .db
        .execute("UPDATE browsers SET state = 'ending' WHERE id = (SELECT max(id::text)::uuid FROM browsers)")
        .await?;
    assert_eq!(take(1, 2, &entry(1)).await?, ImmediateLease::Busy, "it is not idle any more");
    world.db.execute("UPDATE browsers SET state = 'idle' WHERE state = 'ending'").await?;
    let unowned = AuditEntry { api_key: None, project: None, ..entry(1) };
    assert_eq!(take(1, 1, &unowned).await?, ImmediateLease::Busy, "nobody can tell whose the record is");
    assert_eq!(records(&audit).await?, []);

    assert!(matches!(take(1, 1, &entry(1)).await?, ImmediateLease::Leased(_)));
    assert_eq!(records(&audit).await?, [record(1)]);
    // The caller disconnected before the lease, and that record is stored already.
    let gone = AuditEntry { status: 499, ..entry(2) };
    audit.append(std::slice::from_ref(&gone)).await?;
    assert!(matches!(take(2, 2, &entry(2)).await?, ImmediateLease::Leased(_)));
    assert_eq!(records(&audit).await?, [of(gone), record(1)]);
    Ok(())
}

// On a single-threaded runtime, the lease would use a connection of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_lay_too_long_is_not_stored_with_a_lease() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    world.ready(1).await?;
    let first = known(&pool, 1);
    // The only connection is in use by a call that waits for a lock.
    let database = Database::new(&world.db.config().clone().with_connections(1));
    let (wait_queue, projects) = (PgWaitQueue::new(database.clone()), PgProjects::new(database));
    let locked = Held::begin(&world.db, "LOCK TABLE pool_waiters").await?;
    // This call times out, and occupies the connection until then.
    let holding = async { drop(wait_queue.decided(testing::node_id()).await) };
    let taking = async {
        locked.until_waited_for().await?;
        let taken = wait_queue.take_recorded(&first, &lease(1), &entry(1), NOON).await;
        locked.commit().await?;
        Ok::<_, Fault>(taken?)
    };
    // Reads of a web worker on another connection, which succeed, so that the waiting call takes the database for busy.
    let reading = tokio::task::spawn_blocking(move || -> TestResult {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            for _ in 0..50 {
                projects.find(testing::organization_id(), testing::project_id()).await?;
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            Ok(())
        })
    });
    let ((), taken, read) = tokio::join!(holding, taking, reading);
    read??;
    assert_eq!(taken?, ImmediateLease::Busy);
    let taken = world.wait_queue.take_recorded(&first, &lease(1), &entry(1), NOON).await?;
    assert!(matches!(taken, ImmediateLease::Leased(_)));
    Ok(())
}

#[tokio::test]
async fn a_pool_that_is_not_as_it_was_seen_any_more_is_busy_for_whoever_saw_it() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(2).await?;
    world.ready(1).await?;
    world.ready(2).await?;
    let take = async |known: KnownBrowser, n| world.wait_queue.take_recorded(&known, &lease(n), &entry(n), NOON).await;
    let before = KnownBrowser { unchanged_since: pool.updated_at - Duration::SECOND, ..known(&pool, 1) };
    assert_eq!(take(before, 1).await?, ImmediateLease::Busy);
    assert!(matches!(take(known(&pool, 1), 1).await?, ImmediateLease::Leased(_)));
    let renamed =
        Pool { name: Some(SlugName::parse("other").map_err(|_| "a name")?), updated_at: seconds(1), ..pool.clone() };
    assert_eq!(world.replace(&pool, &renamed).await?, PoolStored::Yes);
    assert_eq!(take(known(&pool, 2), 2).await?, ImmediateLease::Busy);
    Ok(())
}

#[tokio::test]
async fn hundreds_of_acquires_at_once_never_get_one_browser_twice() -> TestResult {
    const BROWSERS: u32 = 40;
    let world = World::new().await?;
    let (pool, _) = world.pool(BROWSERS).await?;
    for n in 1..=BROWSERS {
        world.ready(n).await?;
    }
    let leases: Vec<LeaseRequest> = (1..=300).map(lease).collect();
    let acquires = leases.iter().map(|lease| world.wait_queue.take_now(pool.id, lease, NOON));
    let mut browsers = HashSet::new();
    let mut leased = 0;
    for taken in try_join_all(acquires).await? {
        if let ImmediateLease::Leased(session) = taken {
            leased += 1;
            browsers.extend(session.browser);
        }
    }
    assert_eq!((leased, browsers.len()), (BROWSERS as usize, BROWSERS as usize));
    Ok(())
}

#[tokio::test]
async fn waiters_of_two_nodes_are_served_in_the_order_they_came() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(6).await?;
    for n in 1..=6 {
        let node = if n % 2 == 0 { other_node() } else { testing::node_id() };
        enter(&world, &place(n, node)).await?;
    }
    for n in 1..=6 {
        assert_eq!(world.wait_queue.outcome(ticket_id(n)).await?, TicketOutcome::Waiting);
        world.ready(n).await?;
        let session = granted(&world, n).await?;
        assert_eq!((session.id, session.browser), (testing::session_id(n), Some(testing::browser_id(n))));
        assert_eq!(
            world.wait_queue.outcome(ticket_id(n)).await?,
            TicketOutcome::Gone,
            "the ticket is gone with the answer"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_node_of_the_first_in_the_wait_queue_is_reported_and_no_other() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(1).await?;
    let channels = vec![node_channel(testing::node_id()), node_channel(other_node())];
    let mut received = Notifications::listen(world.db.config(), channels);
    assert_eq!(received.next().await, NotificationEvent::Listening);
    enter(&world, &place(1, other_node())).await?;
    enter(&world, &place(2, testing::node_id())).await?;
    world.ready(1).await?;
    let expected =
        NotificationEvent::Notification { channel: node_channel(other_node()), payload: ticket_id(1).to_string() };
    assert_eq!(received.next().await, expected);
    Ok(())
}

#[tokio::test]
async fn a_newcomer_does_not_overtake_who_waits() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(2).await?;
    enter(&world, &place(1, testing::node_id())).await?;
    // An idle browser beside a waiter, as for a moment while the waiter enters the wait queue.
    world.warm(1).await?;
    world.db.execute("UPDATE browsers SET state = 'idle'").await?;
    assert_eq!(world.wait_queue.take_now(pool.id, &lease(2), NOON).await?, ImmediateLease::Busy);
    Ok(())
}

#[tokio::test]
async fn a_browser_that_became_ready_just_before_is_found_by_the_look() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(1).await?;
    world.ready(1).await?;
    enter(&world, &place(1, testing::node_id())).await?;
    assert_eq!(granted(&world, 1).await?.browser, Some(testing::browser_id(1)));
    Ok(())
}

/// A caller enters the wait queue while a browser becomes ready, repeatedly: one of the two must find the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_browser_stays_idle_beside_a_waiter() -> TestResult {
    const ROUNDS: u32 = 50;
    let world = World::new().await?;
    let (pool, _) = world.pool(ROUNDS).await?;
    for n in 1..=ROUNDS {
        world.warm(n).await?;
        let place = place(n, testing::node_id());
        let (entered, ready) =
            tokio::join!(world.wait_queue.enter(&place, NOON), world.pools.ready(testing::browser_id(n), NOON));
        assert!(matches!(entered?, QueueEntered::Yes(_)));
        assert_eq!(ready?, Replaced::Yes);
        assert_eq!(granted(&world, n).await?.browser, Some(testing::browser_id(n)));
    }
    assert_eq!(world.pools.observe(pool.id, testing::node_id()).await?.idle.len(), 0);
    Ok(())
}

/// Every waiter of two nodes gets one browser, in the order of the positions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiters_and_browsers_meet_without_a_lost_or_double_one() -> TestResult {
    const MANY: u32 = 50;
    let world = World::new().await?;
    let _ = world.pool(MANY).await?;
    let waiting = (1..=MANY).map(|n| {
        let world = &world;
        async move { enter(world, &place(n, if n % 2 == 0 { other_node() } else { testing::node_id() })).await }
    });
    let positions = try_join_all(waiting).await?;
    let mut served = Vec::new();
    for n in 1..=MANY {
        world.ready(n).await?;
        let waiter = (1..=MANY).filter(|n| !served.contains(n)).min_by_key(|n| positions[*n as usize - 1]);
        let waiter = waiter.ok_or("nobody waits")?;
        granted(&world, waiter).await?;
        served.push(waiter);
    }
    assert!(world.pools.all_counts().await?.iter().all(|(_, _, queue)| queue.is_none()), "nobody waits");
    Ok(())
}

#[tokio::test]
async fn expired_tickets_of_a_silent_node_are_passed_over() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(2).await?;
    world.silence(other_node()).await?;
    let expired = |n| QueueEntry { lasts: -Duration::SECOND, ..place(n, other_node()) };
    enter(&world, &expired(1)).await?;
    enter(&world, &QueueEntry { lasts: Duration::HOUR, ..place(2, other_node()) }).await?;
    world.warm(1).await?;
    assert_eq!(world.pools.ready(testing::browser_id(1), seconds(10)).await?, Replaced::Yes);
    assert_eq!(granted(&world, 2).await?.browser, Some(testing::browser_id(1)));
    assert_eq!(world.wait_queue.leave(ticket_id(1)).await?, TicketOutcome::Gone);

    enter(&world, &expired(3)).await?;
    world.warm(2).await?;
    assert_eq!(world.pools.ready(testing::browser_id(2), seconds(11)).await?, Replaced::Yes);
    let newcomer = world.wait_queue.take_now(pool.id, &lease(4), seconds(12)).await?;
    assert!(matches!(newcomer, ImmediateLease::Leased(_)), "a dead ticket holds nobody up: {newcomer:?}");
    Ok(())
}

#[tokio::test]
async fn a_ticket_whose_node_lives_gets_its_turn_whatever_time_it_is() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    // The clock was set forward while the ticket waited.
    enter(&world, &QueueEntry { lasts: -Duration::HOUR, ..place(1, testing::node_id()) }).await?;
    world.warm(1).await?;
    assert_eq!(world.pools.ready(testing::browser_id(1), NOON).await?, Replaced::Yes);
    assert_eq!(world.wait_queue.take_now(pool.id, &lease(2), NOON).await?, ImmediateLease::Busy);
    assert_eq!(granted(&world, 1).await?.browser, Some(testing::browser_id(1)));
    Ok(())
}

#[tokio::test]
async fn tickets_of_a_silent_node_come_after_the_others() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(2).await?;
    enter(&world, &place(1, other_node())).await?;
    enter(&world, &place(2, testing::node_id())).await?;
    world.silence(other_node()).await?;
    for (browser, waiter) in [(1, 2), (2, 1)] {
        world.warm(browser).await?;
        assert_eq!(world.pools.ready(testing::browser_id(browser), seconds(100)).await?, Replaced::Yes);
        assert_eq!(granted(&world, waiter).await?.browser, Some(testing::browser_id(browser)));
    }
    Ok(())
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_granted_nothing_and_delays_no_other() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(3).await?;
    let clock = Arc::new(testing::FixedClock::default());
    let unreachable = UnreachableNodes::new(clock.clone());
    world.database.avoid(unreachable.clone());
    unreachable.add(other_node());
    enter(&world, &place(1, other_node())).await?;
    enter(&world, &place(2, testing::node_id())).await?;
    world.warm(1).await?;
    assert_eq!(world.pools.ready(testing::browser_id(1), seconds(1)).await?, Replaced::Yes);
    assert_eq!(granted(&world, 2).await?.browser, Some(testing::browser_id(1)));

    world.warm(2).await?;
    assert_eq!(world.pools.ready(testing::browser_id(2), seconds(2)).await?, Replaced::Yes);
    let newcomer = world.wait_queue.take_now(pool.id, &lease(3), seconds(3)).await?;
    assert!(matches!(newcomer, ImmediateLease::Leased(_)), "it waits for nobody: {newcomer:?}");

    clock.advance(UnreachableNodes::FORGOTTEN_AFTER);
    world.warm(3).await?;
    assert_eq!(world.pools.ready(testing::browser_id(3), seconds(20)).await?, Replaced::Yes);
    assert_eq!(granted(&world, 1).await?.browser, Some(testing::browser_id(3)), "it is tried again");
    Ok(())
}

#[tokio::test]
async fn who_leaves_at_the_moment_of_its_turn_learns_it_and_the_next_gets_the_browser() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(1).await?;
    enter(&world, &place(1, testing::node_id())).await?;
    enter(&world, &place(2, testing::node_id())).await?;
    world.ready(1).await?;
    let TicketOutcome::Granted(session) = world.wait_queue.leave(ticket_id(1)).await? else {
        return Err("not granted".into());
    };
    let undelivered = session.on(SessionEvent::Undelivered, seconds(1))?;
    assert_eq!(world.sessions.end(&session, &undelivered).await?, Replaced::Yes);
    let next = granted(&world, 2).await?;
    assert_eq!((next.id, next.browser), (testing::session_id(2), session.browser));
    Ok(())
}

#[tokio::test]
async fn an_undelivered_lease_leaves_its_browser_idle_and_a_released_one_ends_it() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(1).await?;
    world.ready(1).await?;
    let first = taken(&world, 1).await?;
    let undelivered = first.on(SessionEvent::Undelivered, seconds(1))?;
    assert_eq!(world.sessions.end(&first, &undelivered).await?, Replaced::Yes);
    assert_eq!(world.state_of(testing::browser_id(1)).await?, Some(BrowserState::Idle));
    let second = taken(&world, 2).await?;
    let released = second.on(SessionEvent::Release, seconds(2))?;
    assert_eq!(world.sessions.end(&second, &released).await?, Replaced::Yes);
    assert_eq!(world.state_of(testing::browser_id(1)).await?, Some(BrowserState::Ending));
    Ok(())
}

#[tokio::test]
async fn a_taken_name_costs_no_one_a_browser() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(3).await?;
    let named = |n| -> Result<LeaseRequest, Fault> { Ok(LeaseRequest { name: Some(label("Same")?), ..lease(n) }) };
    world.ready(1).await?;
    assert!(matches!(world.wait_queue.take_now(pool.id, &named(1)?, NOON).await?, ImmediateLease::Leased(_)));
    world.ready(2).await?;
    assert_eq!(world.wait_queue.take_now(pool.id, &named(2)?, NOON).await?, ImmediateLease::NameTaken);
    assert_eq!(world.state_of(testing::browser_id(2)).await?, Some(BrowserState::Idle));
    enter(&world, &QueueEntry { lease: named(3)?, ..place(3, testing::node_id()) }).await?;
    assert_eq!(world.wait_queue.outcome(ticket_id(3)).await?, TicketOutcome::NameTaken);
    enter(&world, &place(4, testing::node_id())).await?;
    assert_eq!(granted(&world, 4).await?.browser, Some(testing::browser_id(2)));
    Ok(())
}

#[tokio::test]
async fn a_ticket_that_comes_back_keeps_its_place() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(3).await?;
    let position = enter(&world, &place(1, testing::node_id())).await?;
    enter(&world, &place(2, testing::node_id())).await?;
    world.ready(1).await?;
    let dead = granted(&world, 1).await?;
    assert_eq!(world.sessions.end(&dead, &dead.on(SessionEvent::StartFailed, seconds(1))?).await?, Replaced::Yes);
    enter(&world, &QueueEntry { position: Some(position), lease: lease(3), ..place(1, testing::node_id()) }).await?;
    world.ready(2).await?;
    assert_eq!(granted(&world, 1).await?.id, testing::session_id(3));
    Ok(())
}

#[tokio::test]
async fn the_tickets_of_a_node_that_starts_anew_are_cleared_and_end_with_their_browsers() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(2).await?;
    enter(&world, &place(1, testing::node_id())).await?;
    enter(&world, &place(2, testing::node_id())).await?;
    enter(&world, &place(3, other_node())).await?;
    world.ready(1).await?;
    assert_eq!(world.wait_queue.decided(testing::node_id()).await?, vec![ticket_id(1)]);
    world.wait_queue.clear(testing::node_id(), seconds(1)).await?;
    assert_eq!(
        world.wait_queue.outcome(ticket_id(3)).await?,
        TicketOutcome::Waiting,
        "somebody may have used the browser"
    );
    assert_eq!(world.state_of(testing::browser_id(1)).await?, Some(BrowserState::Ending));
    let [first, _] = session_numbers(2)[..] else { return Err("two".into()) };
    let ended = world.sessions.find(first).await?.map(|session| session.state);
    assert_eq!(ended, Some(SessionState::Ended(EndReason::StartFailed)));
    Ok(())
}

#[tokio::test]
async fn the_net_finds_a_browser_that_stayed_idle_beside_a_waiter() -> TestResult {
    let world = World::new().await?;
    let _ = world.pool(1).await?;
    enter(&world, &place(1, testing::node_id())).await?;
    world.warm(1).await?;
    world.db.execute("UPDATE browsers SET state = 'idle'").await?;
    world.wait_queue.decided(testing::node_id()).await?;
    granted(&world, 1).await?;
    Ok(())
}

#[tokio::test]
async fn waiters_keep_their_places_over_a_cut_database() -> TestResult {
    let world = World::new().await?;
    let (pool, _) = world.pool(1).await?;
    enter(&world, &place(1, testing::node_id())).await?;
    world.db.interrupt().await?;
    let refused = world.wait_queue.take_now(pool.id, &lease(2), NOON).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    world.db.restore().await?;
    until("it answers", async || world.db.database().ping().await.is_ok()).await?;
    world.ready(1).await?;
    granted(&world, 1).await?;
    Ok(())
}
