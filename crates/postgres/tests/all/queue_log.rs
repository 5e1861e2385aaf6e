//! The log of the wait queue, with which tests of several nodes find callers that were overtaken.

use casement_domain::NodeId;
use casement_domain::pool::{ImmediateLease, QueueEntered, WaitQueue as _};
use casement_domain::testing::{node_id, pool_id};
use casement_test_support::program::QUEUE_LOG;
use pretty_assertions::assert_eq;

use crate::support::{Held, TestResult};
use crate::world::{Fault, World, lease, other_node, place, seconds, ticket_id};

async fn enter(world: &World, n: u32, node: NodeId) -> TestResult {
    let entered = world.wait_queue.enter(&place(n, node), seconds(0)).await?;
    assert!(matches!(entered, QueueEntered::Yes(_)), "{entered:?}");
    Ok(())
}

/// Returns the number of compared pairs, and that of callers who were overtaken.
async fn compared(world: &World) -> Result<Vec<Vec<String>>, Fault> {
    let counts = "SELECT count(*), count(*) FILTER (WHERE is_overtaken) FROM queue_log.pairs";
    Ok(world.db.rows(counts).await?)
}

fn uuid(n: u32) -> uuid::Uuid {
    uuid::Uuid::from_u128(ticket_id(n).ulid().0)
}

#[tokio::test]
async fn the_log_of_the_queue_shows_who_was_overtaken() -> TestResult {
    let world = World::new().await?;
    world.db.execute(QUEUE_LOG).await?;
    world.pool(4).await?;
    world.ready(1).await?;
    let taken = world.wait_queue.take_now(pool_id(1), &lease(1), seconds(0)).await?;
    assert!(matches!(taken, ImmediateLease::Leased(_)), "{taken:?}");
    assert_eq!(compared(&world).await?, [["0", "0"]], "nobody waited");

    enter(&world, 2, node_id()).await?;
    enter(&world, 3, other_node()).await?;
    world.ready(2).await?;
    world.ready(3).await?;
    assert_eq!(compared(&world).await?, [["1", "0"]], "the first one came first");

    enter(&world, 4, node_id()).await?;
    enter(&world, 5, other_node()).await?;
    let leaving = format!("DELETE FROM pool_waiters WHERE id = '{}'", uuid(4));
    let leaving = Held::begin(&world.db, &leaving).await?;
    world.ready(4).await?;
    leaving.commit().await?;
    assert_eq!(compared(&world).await?, [["1", "0"]], "one that leaves just then is not overtaken");

    enter(&world, 6, node_id()).await?;
    enter(&world, 7, other_node()).await?;
    world.db.execute(&format!("UPDATE pool_waiters SET outcome = 'granted' WHERE id = '{}'", uuid(7))).await?;
    world.db.execute(&format!("DELETE FROM pool_waiters WHERE id = '{}'", uuid(6))).await?;
    assert_eq!(compared(&world).await?, [["2", "1"]], "it left later");
    Ok(())
}
