//! Tests of leases and ends of sessions that another node runs.

use std::sync::Arc;

use casement_domain::NodeId;
use casement_domain::browser::{Browser, BrowserState};
use casement_domain::node::{MockPeers, NotedPeers, PeerError, PeerHandOut, PeerNotice, Peers as _, UnreachableNodes};
use casement_domain::pool::{AcquireRequest, Acquired, ImmediateLease, LeaseRequest, PeerRequests, PoolDeleted};
use casement_domain::session::{EndReason, Session, SessionEvent, SessionState};
use casement_domain::testing::{
    FixedClock, browser_id, leased_session, node_id, pool, pool_id, scope, session, session_id,
};
use pretty_assertions::assert_eq;

use crate::support::{Rows, UseCases, World, hung, other_node, pooled_browser, store_down};

/// Returns the n-th session as leased on another node.
fn foreign(n: u32) -> Session {
    Session { node: other_node(), ..leased_session(n) }
}

/// Leases these browsers, one for each request, each by its node.
fn leases(world: &mut World, rows: &Rows, browsers: impl IntoIterator<Item = (u32, NodeId)>) {
    let mut browsers = browsers.into_iter().collect::<Vec<_>>().into_iter();
    let stored = rows.clone();
    world.wait_queue.expect_take_now().returning(move |_, lease: &LeaseRequest, _| {
        let Some((n, node)) = browsers.find(|(_, node)| !lease.avoided.contains(node)) else {
            return Ok(ImmediateLease::Busy);
        };
        assert_eq!(lease.node, node_id(), "its own browsers are preferred");
        let session = Session { id: lease.session, node, browser: Some(browser_id(n)), ..leased_session(n) };
        stored.put(session.clone());
        Ok(ImmediateLease::Leased(Box::new(session)))
    });
}

async fn acquire(casement: &UseCases) -> Option<Session> {
    let request = AcquireRequest { acquire_timeout_seconds: Some(0), ..AcquireRequest::default() };
    match casement.leases.acquire(&scope(), "warm", request).await.expect("acquired") {
        Acquired::Leased(session) => Some(*session),
        _ => None,
    }
}

fn starts() -> World {
    let mut world = World::default();
    world.has_pool(pool(4).name("warm").build());
    world
}

fn ended(why: EndReason) -> SessionState {
    SessionState::Ended(why)
}

#[tokio::test]
async fn a_browser_of_another_node_is_handed_out_by_its_owner() {
    let mut world = starts();
    let rows = world.keep_sessions([]);
    leases(&mut world, &rows, [(1, other_node())]);
    world
        .peers
        .expect_hand_out()
        .withf(|owner, _, profile| *owner == other_node() && profile.is_none())
        .times(1)
        .returning(|_, _, _| Ok(PeerHandOut::Done { profile: None }));
    let casement = world.build();
    let session = acquire(&casement).await.expect("a session");
    assert_eq!((session.node, session.browser), (other_node(), Some(browser_id(1))));
    assert_eq!(casement.activity.sessions(), 0, "its owner watches it");
}

#[tokio::test]
async fn a_hand_out_that_failed_at_the_owner_is_tried_with_its_next_browser() {
    let mut world = starts();
    let rows = world.keep_sessions([]);
    leases(&mut world, &rows, [(1, other_node()), (2, other_node())]);
    let mut answers = vec![PeerHandOut::Done { profile: None }, PeerHandOut::NotAnswering];
    world.peers.expect_hand_out().times(2).returning(move |_, _, _| Ok(answers.pop().expect("two answers")));
    assert_eq!(acquire(&world.build()).await.and_then(|session| session.browser), Some(browser_id(2)));
}

#[tokio::test]
async fn browsers_of_a_node_that_does_not_answer_are_not_tried_again() {
    for error in [PeerError::Unreachable(other_node()), PeerError::Unclear(other_node())] {
        let mut world = starts();
        let rows = world.keep_sessions([]);
        leases(&mut world, &rows, [(1, other_node()), (2, other_node()), (3, node_id())]);
        world.peers.expect_hand_out().times(1).returning(move |_, _, _| Err(error.clone()));
        world.engine.expect_hand_out().times(1).returning(|_, _| Ok(()));
        world.expect_wakes(1);
        assert_eq!(acquire(&world.build()).await.and_then(|session| session.browser), Some(browser_id(3)));
        assert_eq!(rows.states(), [ended(EndReason::StartFailed), SessionState::Active]);
    }
}

#[tokio::test]
async fn an_undelivered_session_is_taken_back_by_its_owner() {
    let mut world = World::default();
    let rows = world.keep_sessions([foreign(1)]);
    world
        .peers
        .expect_undelivered()
        .withf(|owner, id| (*owner, *id) == (other_node(), session_id(1)))
        .times(1)
        .returning(|_, _| Ok(()));
    world.build().leases.undelivered(&foreign(1)).await.expect("taken back");
    assert_eq!(rows.states(), [SessionState::Active], "the owner ends it");
}

#[tokio::test]
async fn an_undelivered_session_ends_with_its_browser_if_its_owner_does_not_answer() {
    let mut world = World::default();
    let rows = world.keep_sessions([foreign(1)]);
    world.peers.expect_undelivered().returning(|owner, _| Err(PeerError::Unreachable(owner)));
    world.expect_wakes(1);
    world.build().leases.undelivered(&foreign(1)).await.expect("ended");
    assert_eq!(rows.states(), [ended(EndReason::StartFailed)]);
}

/// No engine, connection or clock of this node is touched for it.
#[tokio::test]
async fn the_end_of_another_nodes_session_is_stored_and_carried_out_by_its_owner() {
    for answer in [Ok(()), Err(PeerError::Unclear(other_node()))] {
        let mut world = World::default();
        let rows = world.keep_sessions([foreign(1)]);
        let stored = rows.clone();
        world.expect_wakes(1);
        world.peers.expect_carry_out_end().times(1).returning(move |owner, id| {
            assert_eq!((owner, id), (other_node(), session_id(1)));
            assert_eq!(stored.states(), [ended(EndReason::Released)], "the end is stored first");
            answer.clone()
        });
        let done = world.build().sessions.end(session_id(1), SessionEvent::Release).await.expect("ended");
        assert_eq!(done.state, ended(EndReason::Released));
    }
}

fn ending(n: u32) -> Browser {
    Browser { session: Some(session_id(n)), ..pooled_browser(n, BrowserState::Ending) }
}

#[tokio::test]
async fn an_end_that_another_node_has_stored_is_carried_out_once() {
    let mut world = World::default();
    let released = Session { state: ended(EndReason::Released), ..leased_session(1) };
    world.keep_sessions([released]);
    let mut rows = vec![None, Some(ending(1))];
    world.browsers.expect_find().times(2).returning(move |_| Ok(rows.pop().expect("two reads")));
    world.connections.expect_close().returning(|id, why| assert_eq!((id, why), (session_id(1), EndReason::Released)));
    world.expect_wakes(2);
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    casement.activity.watch(&leased_session(1));
    let requests = PeerRequests::new(casement.leases);
    for _ in 0..2 {
        requests.carry_out_end(session_id(1)).await.expect("carried out");
    }
    assert_eq!(casement.activity.sessions(), 0);
}

#[tokio::test]
async fn the_housekeeping_finds_ends_of_which_this_node_was_not_informed() {
    let mut world = World::default();
    let gone = Session { state: ended(EndReason::Deleted), ..session(1) };
    world.keep_sessions([gone, session(2)]);
    world.sessions.expect_of_node().returning(|_| Ok(vec![session(2)]));
    world.sessions.expect_of_deleted_pools().returning(|_| Ok(Vec::new()));
    world.engine.expect_is_known().return_const(true);
    world.expect_close(session_id(1), EndReason::Deleted);
    world.browsers.expect_find().returning(|_| Ok(Some(ending(1))));
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    casement.activity.watch(&session(1));
    casement.sessions.check().await.expect("checked");
    casement.sessions.check().await.expect("checked again");
    assert_eq!(casement.activity.sessions(), 1);
}

#[tokio::test]
async fn a_node_hands_out_only_its_own_active_leases() {
    let over = Session { state: ended(EndReason::Deleted), ..leased_session(3) };
    let mut world = World::default();
    let rows = world.keep_sessions([leased_session(1), foreign(2), over, leased_session(4)]);
    world.engine.expect_hand_out().times(2).returning(|id, _| if id == browser_id(1) { Ok(()) } else { Err(hung()) });
    world.expect_cleanup(browser_id(4));
    world.expect_close(session_id(4), EndReason::StartFailed);
    world.expect_wakes(1);
    let casement = world.build();
    let requests = PeerRequests::new(casement.leases);
    for (n, expected) in [
        (1, PeerHandOut::Done { profile: None }),
        (2, PeerHandOut::NotAnswering),
        (3, PeerHandOut::NotAnswering),
        (4, PeerHandOut::NotAnswering),
        (5, PeerHandOut::NotAnswering),
    ] {
        assert_eq!(requests.hand_out(session_id(n), None).await.expect("an answer"), expected, "session {n}");
    }
    assert_eq!(casement.activity.sessions(), 1);
    assert_eq!(rows.get(session_id(4)).map(|row| row.state), Some(ended(EndReason::StartFailed)));
}

#[tokio::test]
async fn a_session_that_another_node_could_not_deliver_leaves_its_browser_if_unused() {
    let mut world = World::default();
    let rows = world.keep_sessions([leased_session(1)]);
    world.expect_close(session_id(1), EndReason::Undelivered);
    world.expect_wakes(1);
    let requests = PeerRequests::new(world.build().leases);
    requests.undelivered(session_id(1)).await.expect("taken back");
    requests.undelivered(session_id(1)).await.expect("it was before");
    assert_eq!(rows.states(), [ended(EndReason::Undelivered)]);
}

#[tokio::test]
async fn a_notice_of_a_ticket_wakes_its_waiter_and_one_of_a_pool_the_filler() {
    let mut world = World::default();
    world.tickets.expect_wake().times(1).return_const(true);
    world.expect_wakes(1);
    let requests = PeerRequests::new(world.build().leases);
    let ticket = casement_domain::TicketId::from_ulid(crate::support::nth(1));
    requests.inform(PeerNotice::Ticket(ticket)).await.expect("woken");
    requests.inform(PeerNotice::Pool(pool_id(1))).await.expect("woken");
}

#[tokio::test]
async fn the_nodes_of_a_deleted_pool_are_informed_once_each() {
    let mut world = starts();
    let rows = world.keep_sessions([foreign(1), foreign(2), leased_session(3)]);
    world.pools.expect_delete().returning(|_, _| Ok(PoolDeleted::Yes));
    world.sessions.expect_of_pool().returning(|_| Ok(vec![foreign(1), foreign(2), leased_session(3)]));
    world.browsers.expect_of_node().returning(|_| Ok(Vec::new()));
    world.expect_close(session_id(3), EndReason::Deleted);
    world.expect_cleanup(browser_id(3));
    world.wake.expect_wake().return_const(());
    world
        .peers
        .expect_inform()
        .withf(|node, notice| (*node, *notice) == (other_node(), PeerNotice::Ended))
        .times(1)
        .returning(|_, _| Ok(()));
    world.build().pools.delete(&scope(), "warm", true).await.expect("deleted");
    assert_eq!(rows.states(), [ended(EndReason::Deleted); 3]);
}

#[tokio::test]
async fn a_store_that_fails_is_reported_to_the_node_that_sent_the_request() {
    let mut world = World::default();
    world.sessions.expect_find().returning(|_| Err(store_down()));
    let requests = PeerRequests::new(world.build().leases);
    assert!(requests.hand_out(session_id(1), None).await.is_err());
    assert!(requests.undelivered(session_id(1)).await.is_err());
    assert!(requests.carry_out_end(session_id(1)).await.is_err());
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_unreachable_until_it_does_or_15_s_are_over() {
    let clock = Arc::new(FixedClock::default());
    let unreachable = UnreachableNodes::new(clock.clone());
    let mut peers = MockPeers::new();
    let refused = || PeerError::Refused { node: other_node(), reason: "it has another run".to_owned() };
    let mut answers =
        vec![Err(PeerError::Unclear(other_node())), Err(refused()), Err(PeerError::Unreachable(other_node()))];
    peers.expect_inform().times(3).returning(move |_, _| answers.pop().expect("three answers"));
    let noted = NotedPeers::new(Arc::new(peers), unreachable.clone());
    let inform = || noted.inform(other_node(), PeerNotice::Ended);
    for expected in [vec![other_node()], vec![], vec![other_node()]] {
        drop(inform().await);
        assert_eq!(unreachable.all(), expected);
    }
    clock.advance(UnreachableNodes::FORGOTTEN_AFTER);
    assert_eq!(unreachable.all(), []);
}
