//! Tests of the end of sessions: by request, by the loss of the browser, by the idle timeout.

use casement_domain::Replaced;
use casement_domain::browser::BrowserState;
use casement_domain::engine::Capability;
use casement_domain::session::{Activity, EndReason, EndSessionError, IdOrName, Session, SessionEvent, SessionState};
use casement_domain::telemetry::{Capture, Category};
use casement_domain::testing::{FixedClock, NOON, browser_id, leased_session, pool_id, scope, session, session_id};
use pretty_assertions::assert_eq;
use std::sync::Arc;
use time::Duration;

use crate::support::{World, hung, other_node, pooled_browser, store_down};

fn ended(why: EndReason) -> SessionState {
    SessionState::Ended(why)
}

#[tokio::test]
async fn a_delete_ends_the_connections_and_the_browser_and_a_second_one_finds_nothing() {
    let mut world = World::default();
    let rows = world.keep_sessions([session(1)]);
    let stored = rows.clone();
    world.sessions.expect_find_in_project().returning(move |_, which, include_ended| {
        assert!(!include_ended);
        let IdOrName::Id(id) = which else { return Ok(None) };
        Ok(stored.get(*id).filter(Session::is_active))
    });
    world.expect_close(session_id(1), EndReason::Deleted);
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    casement.activity.watch(&session(1));
    casement.clock.advance(Duration::seconds(90));
    let which = session_id(1).to_string();

    casement.sessions.delete(&scope(), &which).await.expect("deleted");

    assert_eq!(
        rows.get(session_id(1)),
        Some(Session { state: ended(EndReason::Deleted), ended_at: Some(NOON + Duration::seconds(90)), ..session(1) })
    );
    assert_eq!(casement.activity.idle(), [], "its idle clock is gone");
    let error = casement.sessions.delete(&scope(), &which).await.expect_err("it is gone");
    assert!(matches!(error, EndSessionError::NotFound(missing) if missing.which == which));
}

#[tokio::test]
async fn of_two_deletes_at_once_one_ends_the_session_and_the_other_finds_none() {
    let mut world = World::default();
    world.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    let mut reads = vec![Session { state: ended(EndReason::Deleted), ..session(1) }, session(1)];
    world.sessions.expect_find().times(2).returning(move |_| Ok(reads.pop()));
    world.sessions.expect_end().times(1).returning(|_, _| Ok(Replaced::LostRace));
    let error = world.build().sessions.delete(&scope(), "one").await.expect_err("the other was first");
    assert!(matches!(error, EndSessionError::NotFound(missing) if missing.which == "one"));
}

#[tokio::test]
async fn a_browser_that_cannot_be_ended_keeps_its_row_for_the_housekeeping() {
    let mut world = World::default();
    let rows = world.keep_sessions([session(1)]);
    world.expect_close(session_id(1), EndReason::Deleted);
    world.engine.expect_end().times(1).returning(|_| Err(hung()));
    world.build().sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended all the same");
    assert_eq!(rows.states(), [ended(EndReason::Deleted)]);
}

#[tokio::test]
async fn a_session_that_is_refused_its_end_stays_as_it_is() {
    let mut world = World::default();
    let rows = world.keep_sessions([session(1)]);
    let casement = world.build();
    let error = casement.sessions.end(session_id(1), SessionEvent::Release).await.expect_err("not from a pool");
    assert!(matches!(error, EndSessionError::Refused(_)), "{error:?}");
    assert_eq!(rows.get(session_id(1)), Some(session(1)));
}

#[tokio::test]
async fn the_loss_of_a_leased_browser_ends_its_session_and_wakes_its_pool() {
    for (event, why) in [(SessionEvent::Crash, EndReason::Crashed), (SessionEvent::OutOfMemory, EndReason::Oom)] {
        let mut world = World::default();
        let rows = world.keep_sessions([leased_session(1)]);
        world.browsers.expect_find().returning(|_| Ok(Some(pooled_browser(1, BrowserState::Leased))));
        world.browsers.expect_discard().returning(|_| Ok(false));
        world.sessions.expect_of_browser().returning(|_| Ok(Some(leased_session(1))));
        world.expect_close(session_id(1), why);
        world.expect_cleanup(browser_id(1));
        world.expect_wakes(1);
        world.build().sessions.browser_lost(browser_id(1), event).await.expect("noted");
        assert_eq!(rows.states(), [ended(why)]);
    }
}

#[tokio::test]
async fn the_loss_of_an_idle_browser_ends_no_session_and_wakes_its_pool() {
    let mut world = World::default();
    world.browsers.expect_find().returning(|_| Ok(Some(pooled_browser(1, BrowserState::Idle))));
    world.browsers.expect_discard().withf(|id| *id == browser_id(1)).times(1).returning(|_| Ok(true));
    world.expect_cleanup(browser_id(1));
    world.expect_wakes(1);
    world.build().sessions.browser_lost(browser_id(1), SessionEvent::Crash).await.expect("noted");
}

#[tokio::test]
async fn the_loss_of_a_browser_that_no_store_knows_clears_its_sandbox() {
    let mut world = World::default();
    world.browsers.expect_find().returning(|_| Ok(None));
    world.browsers.expect_discard().returning(|_| Ok(false));
    world.sessions.expect_of_browser().returning(|_| Ok(None));
    world.expect_cleanup(browser_id(1));
    world.build().sessions.browser_lost(browser_id(1), SessionEvent::Crash).await.expect("noted");
}

#[tokio::test]
async fn a_browser_loss_that_cannot_be_stored_is_reported() {
    let mut world = World::default();
    world.browsers.expect_find().returning(|_| Err(store_down()));
    assert!(world.build().sessions.browser_lost(browser_id(1), SessionEvent::Crash).await.is_err());
}

#[tokio::test]
async fn an_idle_session_ends_when_its_timeout_has_passed_and_not_before() {
    let mut world = World::default();
    let rows = world.keep_sessions([session(1), session(2)]);
    world.sessions.expect_note_activity().returning(|_| Ok(()));
    world.expect_close(session_id(1), EndReason::IdleTimeout);
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    casement.activity.watch(&session(1));
    casement.activity.watch(&session(2));
    let connection = casement.activity.begin(session_id(2));

    casement.clock.advance(Duration::seconds(59));
    casement.sessions.sweep_idle().await.expect("swept");
    assert_eq!(rows.states(), [SessionState::Active, SessionState::Active]);
    casement.clock.advance(Duration::SECOND);
    casement.sessions.sweep_idle().await.expect("swept");
    assert_eq!(rows.states(), [ended(EndReason::IdleTimeout), SessionState::Active]);
    casement.clock.advance(Duration::DAY);
    casement.sessions.sweep_idle().await.expect("swept");
    assert_eq!(rows.states(), [ended(EndReason::IdleTimeout), SessionState::Active], "an open connection is use");
    drop(connection);
}

#[tokio::test]
async fn the_idle_clock_begins_anew_when_the_last_connection_closes() {
    let clock = Arc::new(FixedClock::default());
    let activity = Activity::new(clock.clone(), clock.clone());
    activity.watch(&session(1));
    let (first, second) = (activity.begin(session_id(1)), activity.begin_view(session_id(1), true));
    clock.advance(Duration::HOUR);
    drop(first);
    clock.advance(Duration::HOUR);
    assert_eq!(activity.idle(), [], "the other is open");
    assert!(activity.is_watched(session_id(1)));
    drop(second);
    assert!(!activity.is_watched(session_id(1)));
    clock.advance(Duration::seconds(59));
    assert_eq!(activity.idle(), []);
    clock.advance(Duration::SECOND);
    assert_eq!(activity.idle(), [session_id(1)]);
}

#[tokio::test]
async fn a_live_view_that_may_only_watch_is_no_use() {
    let clock = Arc::new(FixedClock::default());
    let activity = Activity::new(clock.clone(), clock.clone());
    activity.watch(&session(1));
    clock.advance(Duration::seconds(30));
    let watching = activity.begin_view(session_id(1), false);
    assert!(activity.is_watched(session_id(1)));
    clock.advance(Duration::seconds(30));
    assert_eq!(activity.idle(), [session_id(1)]);
    drop(watching);
    assert!(!activity.is_watched(session_id(1)));
    assert_eq!((activity.idle(), activity.take_changes()), (vec![session_id(1)], vec![]));
}

#[tokio::test]
async fn each_use_is_reported_once() {
    let clock = Arc::new(FixedClock::default());
    let activity = Activity::new(clock.clone(), clock.clone());
    activity.watch(&session(1));
    assert_eq!(activity.take_changes(), [], "nothing happened yet");
    clock.advance(Duration::SECOND);
    drop(activity.begin(session_id(1)));
    assert_eq!(activity.take_changes(), [(session_id(1), NOON + Duration::SECOND)]);
    assert_eq!(activity.take_changes(), [], "told already");
    let open = activity.begin(session_id(1));
    clock.advance(Duration::SECOND);
    assert_eq!(activity.take_changes(), [(session_id(1), NOON + Duration::seconds(2))], "open is in use");
    drop(open);
    assert_eq!(activity.take_changes(), []);
}

#[tokio::test]
async fn setting_the_wall_clock_does_not_change_idle_timeouts() {
    for step in [Duration::HOUR, -Duration::HOUR] {
        let clock = Arc::new(FixedClock::default());
        let activity = Activity::new(clock.clone(), clock.clone());
        activity.watch(&session(1));
        clock.step(step);
        clock.advance(Duration::seconds(59));
        assert_eq!(activity.idle(), [], "{step}");
        // The stored time is that of the wall clock as it was set.
        drop(activity.begin(session_id(1)));
        assert_eq!(activity.take_changes(), [(session_id(1), NOON + step + Duration::seconds(59))]);
        clock.step(step);
        clock.advance(Duration::seconds(60));
        assert_eq!(activity.idle(), [session_id(1)], "{step}");
    }
}

#[tokio::test]
async fn watching_again_keeps_the_clock_and_unwatched_sessions_have_none() {
    let clock = Arc::new(FixedClock::default());
    let activity = Activity::new(clock.clone(), clock.clone());
    let too_early = activity.begin(session_id(1));
    activity.watch(&session(1));
    let open = activity.begin(session_id(1));
    drop(too_early);
    activity.watch(&session(1));
    clock.advance(Duration::HOUR);
    assert_eq!(activity.idle(), [], "still open after it was watched again");
    activity.forget(session_id(1));
    drop(open);
    assert_eq!((activity.idle(), activity.take_changes()), (vec![], vec![]));
}

#[tokio::test]
async fn what_cannot_be_stored_is_reported_and_ends_nothing() {
    let mut world = World::default();
    world.sessions.expect_note_activity().times(1).returning(|_| Err(store_down()));
    let casement = world.build();
    casement.activity.watch(&session(1));
    casement.activity.watch(&Session { last_active_at: NOON - Duration::HOUR, ..session(2) });
    casement.clock.advance(Duration::SECOND);
    drop(casement.activity.begin(session_id(1)));
    assert!(casement.sessions.sweep_idle().await.is_err());
}

#[tokio::test]
async fn a_session_ended_elsewhere_is_only_removed_from_activity() {
    let mut world = World::default();
    world.keep_sessions([Session { state: ended(EndReason::Deleted), ..session(1) }]);
    let casement = world.build();
    casement.activity.watch(&session(1));
    casement.clock.advance(Duration::HOUR);
    casement.sessions.sweep_idle().await.expect("swept");
    assert_eq!(casement.activity.idle(), []);
}

#[tokio::test]
async fn a_session_that_another_node_ended_loses_its_connections_at_once() {
    let mut world = World::default();
    let deleted = |session| Session { state: ended(EndReason::Deleted), ..session };
    let elsewhere = Session { node: other_node(), ..session(2) };
    world.keep_sessions([deleted(leased_session(1)), deleted(elsewhere), session(3)]);
    world.expect_close(session_id(1), EndReason::Deleted);
    world.wake.expect_wake().withf(|id| *id == pool_id(1)).times(1).return_const(());
    let casement = world.build();
    casement.activity.watch(&leased_session(1));
    for n in 1..=4 {
        casement.sessions.ended_elsewhere(session_id(n)).await.expect("noted");
    }
    casement.clock.advance(Duration::HOUR);
    assert_eq!(casement.activity.idle(), []);
}

#[tokio::test]
async fn an_undelivered_lease_leaves_its_browser_to_the_pool() {
    let mut world = World::default();
    let rows = world.keep_sessions([leased_session(1)]);
    world.expect_close(session_id(1), EndReason::Undelivered);
    world.wake.expect_wake().withf(|id| *id == pool_id(1)).times(1).return_const(());
    world.build().leases.undelivered(&leased_session(1)).await.expect("given back");
    assert_eq!(rows.states(), [ended(EndReason::Undelivered)]);
}

#[tokio::test]
async fn an_undelivered_lease_that_was_used_ends_with_its_browser() {
    for is_watched_when_it_is_used in [true, false] {
        let mut world = World::default();
        let rows = world.keep_sessions([leased_session(1)]);
        world.expect_close(session_id(1), EndReason::StartFailed);
        world.wake.expect_wake().times(1).return_const(());
        world.expect_cleanup(browser_id(1));
        let casement = world.build();
        if is_watched_when_it_is_used {
            casement.activity.watch(&leased_session(1));
        }
        drop(casement.activity.begin(session_id(1)).expect("it is active"));
        casement.leases.undelivered(&leased_session(1)).await.expect("ended");
        assert_eq!(rows.states(), [ended(EndReason::StartFailed)]);
    }
}

#[tokio::test]
async fn use_of_a_lease_that_is_being_returned_is_refused() {
    let casement = World::default().build();
    let session = leased_session(1);
    assert!(casement.activity.take_back(&session));
    assert!(casement.activity.begin(session.id).is_none() && casement.activity.begin_view(session.id, true).is_none());
    assert!(casement.sessions.operations().begin(&session, Capability::Files).is_err());
    assert!(casement.activity.take_back(&session), "it stays so, should the store fail meanwhile");
    // A call that found the session before, and whose body arrived slowly.
    casement.activity.forget(session.id);
    assert!(casement.activity.begin(session.id).is_none(), "its browser is another's by now");
}

#[tokio::test]
async fn a_browser_that_captured_for_an_undelivered_lease_is_not_leased_again() {
    let mut world = World::default();
    let captured = Session { telemetry: Capture::only([Category::Console]), ..leased_session(1) };
    world.keep_sessions([captured]);
    world.expect_close(session_id(1), EndReason::Undelivered);
    world.wake.expect_wake().times(1).return_const(());
    world.expect_cleanup(browser_id(1));
    let session = Session { telemetry: Capture::only([Category::Console]), ..leased_session(1) };
    world.build().leases.undelivered(&session).await.expect("ended");
}

#[tokio::test]
async fn an_undelivered_session_on_demand_loses_its_browser() {
    let mut world = World::default();
    world.keep_sessions([session(1)]);
    world.expect_close(session_id(1), EndReason::Undelivered);
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    casement.sessions.end(session_id(1), SessionEvent::Undelivered).await.expect("ended");
}

#[tokio::test]
async fn an_ended_session_is_found_by_its_name_if_no_other_one_had_it() {
    for (count, is_found) in [(1, true), (2, false)] {
        let mut world = World::default();
        let gone = Session { state: ended(EndReason::Crashed), ..session(1) };
        world.sessions.expect_find_in_project().returning(move |_, _, include| Ok(include.then(|| gone.clone())));
        world.sessions.expect_count_named().returning(move |_, _| Ok(count));
        let casement = world.build();
        let found = async |which: &str| casement.sessions.find_inside(&scope(), which, true).await;
        assert!(found(&session_id(1).to_string()).await.is_ok(), "an id is never ambiguous");
        match found("nightly").await {
            Ok(session) => assert!(is_found && session.id == session_id(1)),
            Err(error) => assert!(!is_found && error.to_string().contains("by its id"), "{error}"),
        }
        let active_only = casement.sessions.find_inside(&scope(), "nightly", false).await;
        assert!(active_only.is_err(), "where only active sessions are meant");
    }
}
