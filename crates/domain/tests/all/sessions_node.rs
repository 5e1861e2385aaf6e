//! Tests of a node's work after its restart, on browsers that other nodes marked, and for lost nodes.

use casement_domain::browser::{Browser, BrowserState};
use casement_domain::session::{EndReason, Session, SessionEvent, SessionState};
use casement_domain::telemetry::{Capture, Category, MockRecorder};
use casement_domain::testing::{NOON, browser_id, leased_session, node_id, session, session_id};
use mockall::Sequence;
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::{World, other_node, pooled_browser, store_down};

#[tokio::test]
async fn after_a_restart_what_lives_goes_on_and_what_is_dead_is_cleared() {
    let starting = Session { state: SessionState::Starting, browser: None, ..session(3) };
    let all = [session(1), session(2), starting.clone()];
    let mut world = World::default();
    let rows = world.keep_sessions(all.clone());
    world.sessions.expect_of_node().withf(|node| *node == node_id()).times(1).returning(move |_| Ok(all.to_vec()));
    let stored = [(1, BrowserState::Leased), (4, BrowserState::Idle)];
    let dead =
        [(5, BrowserState::Idle), (6, BrowserState::Warming), (7, BrowserState::Ending), (8, BrowserState::Leased)];
    world
        .browsers
        .expect_of_node()
        .times(1)
        .returning(move |_| Ok(stored.iter().chain(&dead).map(|(n, state)| pooled_browser(*n, *state)).collect()));
    world.expect_close(session_id(2), EndReason::Crashed);
    world.expect_close(session_id(3), EndReason::StartFailed);
    for n in [2, 5, 6, 7, 8] {
        world.expect_cleanup(browser_id(n));
    }
    let casement = world.build();

    // Browser 5 has ended, 6 was being started before the restart, 7 was ending, and 8 has no session.
    let alive = [1, 3, 4, 6, 7, 8].map(browser_id);
    let living = casement.sessions.adopt(&alive).await.expect("adopted");

    assert_eq!(living, [browser_id(1), browser_id(4)]);
    assert_eq!(
        rows.states(),
        [SessionState::Active, SessionState::Ended(EndReason::Crashed), SessionState::Ended(EndReason::StartFailed)]
    );
    casement.clock.advance(Duration::seconds(60));
    assert_eq!(casement.activity.idle(), [session_id(1)], "its idle clock goes on");
}

#[tokio::test]
async fn an_idle_clock_counts_the_time_that_the_server_was_away() {
    let mut world = World::default();
    world.sessions.expect_of_node().returning(|_| Ok(vec![session(1)]));
    world.browsers.expect_of_node().returning(|_| Ok(vec![]));
    let casement = world.build();
    casement.clock.advance(Duration::HOUR);
    casement.sessions.adopt(&[browser_id(1)]).await.expect("adopted");
    assert_eq!(casement.activity.idle(), [session_id(1)]);
}

#[tokio::test]
async fn a_clock_set_back_while_the_server_was_down_gives_a_session_its_timeout_once() {
    let mut world = World::default();
    world.sessions.expect_of_node().returning(|_| Ok(vec![session(1)]));
    world.browsers.expect_of_node().returning(|_| Ok(vec![]));
    let casement = world.build();
    casement.clock.step(-Duration::HOUR);
    casement.sessions.adopt(&[browser_id(1)]).await.expect("adopted");
    casement.clock.advance(Duration::seconds(59));
    assert_eq!(casement.activity.idle(), []);
    casement.clock.advance(Duration::SECOND);
    assert_eq!(casement.activity.idle(), [session_id(1)]);
}

#[tokio::test]
async fn what_cannot_be_read_is_reported_and_nothing_is_cleared() {
    let mut world = World::default();
    world.sessions.expect_of_node().returning(|_| Err(store_down()));
    assert!(world.build().sessions.adopt(&[]).await.is_err());
}

#[tokio::test]
async fn what_is_held_for_the_sessions_of_a_lost_node_is_released_without_its_browsers() {
    let state = SessionState::Ended(EndReason::NodeLost);
    let gone = Session { node: other_node(), state, ended_at: Some(NOON), ..session(1) };
    let mut world = World::default();
    world.expect_close(session_id(1), EndReason::NodeLost);
    world.build().sessions.mark_node_lost(&[gone]).await;
}

#[tokio::test]
async fn a_node_that_was_lost_drops_what_it_held_for_sessions_that_ended_meanwhile() {
    let mut world = World::default();
    world.sessions.expect_of_node().returning(|_| Ok(vec![session(2)]));
    world.expect_close(session_id(1), EndReason::NodeLost);
    let casement = world.build();
    casement.activity.watch(&session(1));
    casement.activity.watch(&session(2));
    casement.sessions.drop_ended().await.expect("dropped");
    assert_eq!(casement.activity.watched(), [session_id(2)]);
}

#[tokio::test]
async fn a_drain_ends_unused_browsers_at_once_and_sessions_at_its_deadline() {
    let mut world = World::default();
    let rows =
        world.keep_sessions([session(1), Session { state: SessionState::Starting, browser: None, ..session(2) }]);
    let all = [session(1), Session { state: SessionState::Starting, browser: None, ..session(2) }];
    world.sessions.expect_of_node().returning(move |_| Ok(all.to_vec()));
    world.browsers.expect_of_node().returning(|_| {
        Ok(BrowserState::ALL.into_iter().zip(11..).map(|(state, n)| pooled_browser(n, state)).collect())
    });
    let unused = [BrowserState::Warming, BrowserState::Idle];
    let unused = BrowserState::ALL.into_iter().zip(11..).filter(move |(state, _)| unused.contains(state));
    let unused: Vec<_> = unused.map(|(_, n)| browser_id(n)).collect();
    world.browsers.expect_discard().times(2).returning(move |id| {
        assert!(unused.contains(&id), "{id} is in use");
        Ok(true)
    });
    let idle = BrowserState::ALL.into_iter().zip(11..).find(|(state, _)| *state == BrowserState::Idle);
    world.expect_cleanup(browser_id(idle.expect("a state").1));
    world.expect_close(session_id(1), EndReason::NodeDrained);
    world.expect_close(session_id(2), EndReason::StartFailed);
    world.expect_cleanup(browser_id(1));
    world.expect_wakes(2);
    let casement = world.build();
    casement.sessions.discard_unused().await.expect("discarded");
    assert_eq!(rows.states(), [SessionState::Active, SessionState::Starting]);
    casement.sessions.end_drained().await.expect("ended");
    let ended = [EndReason::NodeDrained, EndReason::StartFailed].map(SessionState::Ended);
    assert_eq!(rows.states(), ended);
}

#[tokio::test]
async fn housekeeping_buries_what_is_marked_as_ending_and_nothing_else() {
    let mut world = World::default();
    world
        .browsers
        .expect_of_node()
        .withf(|node| *node == node_id())
        .returning(|_| Ok(BrowserState::ALL.into_iter().zip(1..).map(|(state, n)| pooled_browser(n, state)).collect()));
    world.expect_cleanup(browser_id(4));
    world.build().sessions.clean_up_pending().await.expect("cleared");
}

#[tokio::test]
async fn sessions_that_no_process_here_knows_end_by_their_idle_clock() {
    let mut world = World::default();
    world.sessions.expect_of_node().returning(|_| Ok(vec![session(1)]));
    world.sessions.expect_of_deleted_pools().returning(|_| Ok(Vec::new()));
    world.engine.expect_is_known().return_const(true);
    let casement = world.build();
    casement.sessions.check().await.expect("checked");
    casement.clock.advance(time::Duration::seconds(60));
    casement.sessions.check().await.expect("checked again, which does not wind the clock back");
    assert_eq!(casement.activity.idle(), [session_id(1)]);
}

#[tokio::test]
async fn a_session_without_a_browser_ends_after_a_timeout() {
    let mut world = World::default();
    let rows = world.keep_sessions([session(1), session(2)]);
    world.sessions.expect_of_node().returning(|_| Ok(vec![session(1), session(2)]));
    world.sessions.expect_of_deleted_pools().returning(|_| Ok(Vec::new()));
    world.engine.expect_is_known().returning(|browser| browser == browser_id(1));
    world.expect_close(session_id(2), EndReason::Crashed);
    world.expect_cleanup(browser_id(2));
    let casement = world.build();
    casement.sessions.check().await.expect("it may be handed over just now");
    casement.clock.step(Duration::HOUR);
    casement.sessions.check().await.expect("its clock was set, no time has passed");
    assert_eq!(rows.states(), [SessionState::Active, SessionState::Active]);
    casement.clock.advance(Duration::minutes(6));
    casement.sessions.check().await.expect("checked");
    assert_eq!(rows.states(), [SessionState::Active, SessionState::Ended(EndReason::Crashed)]);
}

#[tokio::test]
async fn what_a_broken_off_deletion_of_a_pool_left_ends() {
    let mut world = World::default();
    let rows = world.keep_sessions([leased_session(1)]);
    world.sessions.expect_of_node().returning(|_| Ok(Vec::new()));
    let of = |node: &casement_domain::NodeId| *node == node_id();
    world.sessions.expect_of_deleted_pools().withf(of).times(1).returning(|_| Ok(vec![leased_session(1)]));
    world.expect_close(session_id(1), EndReason::Deleted);
    world.expect_wakes(1);
    world.expect_cleanup(browser_id(1));
    world.build().sessions.check().await.expect("checked");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::Deleted)]);
}

#[tokio::test]
async fn the_last_events_of_a_session_are_stored_before_its_browser_ends_without_a_wait() {
    let mut world = World::default();
    world.keep_sessions([Session { telemetry: Capture::only([Category::Console]), ..session(1) }]);
    world.expect_close(session_id(1), EndReason::Deleted);
    // The cleanup closes them too: another node may have ended the session.
    world.expect_close(session_id(1), EndReason::Deleted);
    let mut order = Sequence::new();
    let mut recorder = MockRecorder::new();
    recorder.expect_ended().times(1).returning(|_| ());
    recorder.expect_is_owed().returning(|_| true);
    recorder.expect_collect().times(1).in_sequence(&mut order).returning(|_, _| ());
    world.engine.expect_end().times(1).in_sequence(&mut order).returning(|_| Ok(()));
    world.browsers.expect_forget().times(1).returning(|_| Ok(()));
    let ending = Browser { session: Some(session_id(1)), ..pooled_browser(1, BrowserState::Ending) };
    world.browsers.expect_of_node().returning(move |_| Ok(vec![ending.clone()]));
    world.recorder = Some(recorder);
    let casement = world.build();
    casement.sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended");
    casement.sessions.clean_up_pending().await.expect("cleared");
}
