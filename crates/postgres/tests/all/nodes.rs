//! Nodes: their runs, their states, and their loss.

use casement_domain::Replaced;
use casement_domain::node::{
    Epoch, Heartbeat, NodeCondition, NodeFilter, NodeRepository, NodeState, SilentNode, StateChange,
};
use casement_domain::page::Page;
use casement_domain::pool::{ImmediateLease, WaitQueue as _};
use casement_domain::session::{EndReason, SessionRepository as _, SessionState, Tags};
use casement_domain::testing::{self, node_id, session_id};
use casement_postgres::NODES_CHANNEL;
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::{Held, TestResult};
use crate::world::{Fault, Listener, World, lease, node, other_node, seconds};

const PAGE: Page = Page { limit: 10, offset: 0 };

fn drain(epoch: Epoch, deadline: Option<i64>) -> StateChange {
    let drain = deadline.map(Duration::seconds);
    StateChange { epoch, from: NodeState::Serving, to: NodeState::Draining, drain }
}

async fn epoch(world: &World) -> Result<Epoch, Fault> {
    Ok(world.nodes.find(node_id()).await?.ok_or("no node")?.epoch)
}

async fn beat(world: &World, epoch: Epoch) -> Result<Option<Heartbeat>, Fault> {
    Ok(world.nodes.heartbeat(node_id(), epoch).await?)
}

#[tokio::test]
async fn a_node_is_named_with_its_last_word_only_if_it_has_something() -> TestResult {
    let world = World::new().await?;
    assert_eq!(world.nodes.with_remains().await?, vec![]);
    world.pool(1).await?;
    world.ready(1).await?;
    let received = async || Ok::<_, Fault>(world.nodes.with_remains().await?);
    let before = received().await?;
    assert_eq!(before.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [node_id()]);
    world.silence(node_id()).await?;
    let silent = received().await?;
    assert!(silent[0].1 < before[0].1);
    assert!(beat(&world, epoch(&world).await?).await?.is_some());
    assert!(received().await?[0].1 > silent[0].1);
    world.silence(node_id()).await?;
    world.nodes.announce(&node(node_id())).await?;
    assert!(received().await?[0].1 > silent[0].1);
    Ok(())
}

#[tokio::test]
async fn only_the_latest_run_of_a_node_sends_heartbeats_and_is_drained() -> TestResult {
    let world = World::new().await?;
    let first = epoch(&world).await?;
    let second = world.nodes.announce(&node(node_id())).await?;
    assert!(second > first);
    assert_eq!(beat(&world, first).await?, None);
    assert_eq!(world.nodes.change_state(node_id(), drain(first, None)).await?, Replaced::LostRace);
    let serving = Heartbeat { state: NodeState::Serving, drain_left: None };
    assert_eq!(beat(&world, second).await?, Some(serving));
    assert_eq!(world.nodes.change_state(node_id(), drain(second, None)).await?, Replaced::Yes);
    assert_eq!(world.nodes.change_state(node_id(), drain(second, None)).await?, Replaced::LostRace);
    assert_eq!(beat(&world, second).await?, Some(Heartbeat { state: NodeState::Draining, drain_left: None }));
    let third = world.nodes.announce(&node(node_id())).await?;
    assert_eq!(beat(&world, third).await?, Some(serving), "a restart serves again");
    Ok(())
}

#[tokio::test]
async fn the_earlier_of_two_deadlines_counts_and_a_resume_removes_it() -> TestResult {
    let world = World::new().await?;
    let run = epoch(&world).await?;
    let again = |deadline| StateChange { from: NodeState::Draining, ..drain(run, deadline) };
    let left = async || Ok::<_, Fault>(beat(&world, run).await?.ok_or("no run")?.drain_left);
    assert_eq!(world.nodes.change_state(node_id(), drain(run, None)).await?, Replaced::Yes);
    for (deadline, least, most) in [(600, 500, 600), (60, 30, 60), (600, 30, 60)] {
        assert_eq!(world.nodes.change_state(node_id(), again(Some(deadline))).await?, Replaced::Yes);
        let left = left().await?.ok_or("no deadline")?;
        assert!(left <= Duration::seconds(most) && left > Duration::seconds(least), "{left}");
    }
    let shown = world.nodes.status(node_id()).await?.ok_or("no node")?;
    assert!(shown.drain_ends_at.is_some_and(|end| end > shown.stored.heartbeat_at));
    world.db.execute("UPDATE nodes SET drain_ends_at = now() - interval '1 minute'").await?;
    assert_eq!(left().await?, Some(Duration::ZERO));
    let resume = StateChange { epoch: run, from: NodeState::Draining, to: NodeState::Serving, drain: None };
    assert_eq!(world.nodes.change_state(node_id(), resume).await?, Replaced::Yes);
    assert_eq!(beat(&world, run).await?, Some(Heartbeat { state: NodeState::Serving, drain_left: None }));
    Ok(())
}

#[tokio::test]
async fn a_node_that_begins_changes_or_is_lost_is_named_to_all_nodes_with_the_commit() -> TestResult {
    let world = World::new().await?;
    let mut other = Listener::new(&world, NODES_CHANNEL).await?;
    let run = world.nodes.announce(&node(node_id())).await?;
    assert_eq!(other.payloads(&world).await?, [node_id().to_string()], "it has begun a run");
    assert_eq!(world.nodes.change_state(node_id(), drain(run, None)).await?, Replaced::Yes);
    assert_eq!(other.payloads(&world).await?, [node_id().to_string()], "it drains");
    assert_eq!(world.nodes.change_state(node_id(), drain(run, None)).await?, Replaced::LostRace);
    assert_eq!(other.payloads(&world).await?, [""; 0], "nothing has changed");

    let heartbeat_at = async || Ok::<_, Fault>(world.nodes.find(node_id()).await?.ok_or("no node")?.heartbeat_at);
    let before = SilentNode { id: node_id(), heartbeat_at: heartbeat_at().await? };
    assert!(beat(&world, run).await?.is_some());
    assert_eq!(world.nodes.lose(before, seconds(9)).await?, None);
    assert_eq!(other.payloads(&world).await?, [""; 0], "it lives");
    let lost = SilentNode { heartbeat_at: heartbeat_at().await?, ..before };
    let held = Held::begin(&world.db, "LOCK TABLE browsers IN SHARE MODE").await?;
    let losing = async { Ok::<_, Fault>(world.nodes.lose(lost, seconds(9)).await?) };
    let meanwhile = async {
        held.until_waited_for().await?;
        let notified = other.payloads(&world).await?;
        held.commit().await?;
        Ok::<_, Fault>(notified)
    };
    let (ended, notified) = tokio::join!(losing, meanwhile);
    assert_eq!((ended?, notified?), (Some(vec![]), vec![]), "its browsers have rows still");
    assert_eq!(other.payloads(&world).await?, [node_id().to_string()], "it is lost");
    Ok(())
}

#[tokio::test]
async fn a_draining_node_is_drained_when_nothing_is_left() -> TestResult {
    let world = World::new().await?;
    let run = epoch(&world).await?;
    assert!(!world.nodes.finish_drain(node_id(), run).await?, "it serves");
    world.pool(1).await?;
    world.ready(1).await?;
    assert_eq!(world.nodes.change_state(node_id(), drain(run, None)).await?, Replaced::Yes);
    assert!(!world.nodes.finish_drain(node_id(), run).await?, "it has a browser");
    world.db.execute("DELETE FROM browsers").await?;
    assert!(!world.nodes.finish_drain(node_id(), Epoch(run.0 - 1)).await?, "that run has ended");
    assert!(world.nodes.finish_drain(node_id(), run).await?);
    assert!(!world.nodes.finish_drain(node_id(), run).await?, "it is drained already");
    Ok(())
}

#[tokio::test]
async fn nodes_are_listed_with_their_condition_and_load() -> TestResult {
    let world = World::new().await?;
    let mut labelled = node(other_node());
    labelled.host = "a".to_owned();
    labelled.labels = Tags::parse([("zone".to_owned(), "a".to_owned())].into()).map_err(|_| "labels")?;
    world.nodes.announce(&labelled).await?;
    world.pool(2).await?;
    world.ready(1).await?;
    world.ready(2).await?;
    let taken = world.wait_queue.take_now(testing::pool_id(1), &lease(1), seconds(1)).await?;
    assert!(matches!(taken, ImmediateLease::Leased(_)));
    let list = async |filter: NodeFilter| {
        let found = world.nodes.list(&filter, PAGE).await?;
        Ok::<_, Fault>(found.items.iter().map(|one| (one.stored.node.id, one.condition())).collect::<Vec<_>>())
    };
    let of = |condition| NodeFilter { condition: Some(condition), ..NodeFilter::default() };
    use NodeCondition::{Draining, Lost, Serving};
    assert_eq!(list(NodeFilter::default()).await?, [(other_node(), Serving), (node_id(), Serving)]);
    let labels = NodeFilter { labels: [("zone".to_owned(), "a".to_owned())].into(), ..NodeFilter::default() };
    assert_eq!(list(labels).await?, [(other_node(), Serving)]);
    let status = world.nodes.status(node_id()).await?.ok_or("no node")?;
    assert_eq!((status.sessions, status.idle_browsers), (1, 1));
    assert_eq!(status.stored.node, node(node_id()));

    world.silence(other_node()).await?;
    assert_eq!(list(of(Lost)).await?, [(other_node(), Lost)]);
    let run = epoch(&world).await?;
    assert_eq!(world.nodes.change_state(node_id(), drain(run, None)).await?, Replaced::Yes);
    assert_eq!(list(of(Draining)).await?, [(node_id(), Draining)]);
    assert_eq!(list(of(Serving)).await?, []);
    world.db.execute("UPDATE nodes SET heartbeat_at = now() - interval '8 days'").await?;
    assert_eq!(list(NodeFilter::default()).await?, [], "gone for long");
    Ok(())
}

#[tokio::test]
async fn a_lost_node_loses_its_epoch_its_sessions_and_its_browsers_together() -> TestResult {
    let world = World::new().await?;
    world.pool(2).await?;
    world.ready(1).await?;
    world.ready(2).await?;
    let taken = world.wait_queue.take_now(testing::pool_id(1), &lease(1), seconds(1)).await?;
    assert!(matches!(taken, ImmediateLease::Leased(_)));
    let before = epoch(&world).await?;
    let heartbeat_at = world.nodes.find(node_id()).await?.ok_or("no node")?.heartbeat_at;
    let silent = SilentNode { id: node_id(), heartbeat_at };

    assert!(beat(&world, before).await?.is_some());
    assert_eq!(world.nodes.lose(silent, seconds(9)).await?, None, "it has sent a heartbeat meanwhile");
    let heartbeat_at = world.nodes.find(node_id()).await?.ok_or("no node")?.heartbeat_at;
    let ended = world.nodes.lose(SilentNode { heartbeat_at, ..silent }, seconds(9)).await?.ok_or("not lost")?;
    let (lost, at) = (SessionState::Ended(EndReason::NodeLost), Some(seconds(9)));
    assert_eq!(
        ended.iter().map(|one| (one.id, one.state, one.ended_at)).collect::<Vec<_>>(),
        [(session_id(1), lost, at)]
    );
    assert_eq!(world.sessions.find(session_id(1)).await?.map(|one| one.state), Some(lost));
    assert_eq!(world.nodes.with_remains().await?, vec![]);

    assert_eq!(beat(&world, before).await?, None, "the run that was away learns it");
    let next = world.nodes.announce(&node(node_id())).await?;
    assert!(next.0 > before.0 + 1);
    assert!(beat(&world, next).await?.is_some());
    Ok(())
}
