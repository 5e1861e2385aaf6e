//! Tests of leases: at once and after waiting, with lost callers and lost browsers, and of their release.

mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::browser::{HandOut, StartUrl};
use casement_domain::pool::{
    AcquireRequest, Acquired, Growth, ImmediateLease, MockWaiter, NotLeased, Pool, QueueEntered, QueueEntry,
    ReleaseError, TicketOutcome, Waiter, WaiterEvent, WaitingCaller,
};
use casement_domain::session::{EndReason, PoolRef, Session, SessionState};
use casement_domain::telemetry::{self, Capture, Category, MockRecorder};
use casement_domain::testing::{NOON, browser_id, leased_session, node_id, pool, pool_id, scope, session, session_id};
use casement_domain::{MonotonicTime, NotFound, SessionId, StoreError, TicketId, UseCaseError};
use mockall::Sequence;
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::{UseCases, World, archived, hung, nth, store_down};

fn pool_of_four() -> Pool {
    pool(4).name("warm").build()
}

fn patient() -> AcquireRequest {
    AcquireRequest { acquire_timeout_seconds: Some(30), name: Some("one".to_owned()), ..AcquireRequest::default() }
}

/// Returns a world in which no browser is idle and the waiter receives `events` one after the other.
fn busy(events: impl IntoIterator<Item = WaiterEvent>) -> (World, Arc<Mutex<Vec<QueueEntry>>>) {
    let mut world = World::default();
    world.has_pool(pool_of_four());
    world.wait_queue.expect_take_now().times(1).returning(|_, _, _| Ok(ImmediateLease::Busy));
    let mut turn = MockWaiter::new();
    let mut events = events.into_iter().collect::<Vec<_>>().into_iter();
    turn.expect_wait().returning(move |_| events.next().expect("it waits no longer than it must"));
    let mut turn = Some(turn);
    world.tickets.expect_expect().times(1).returning(move |_| Box::new(turn.take().expect("one waiter")));
    let places = Arc::new(Mutex::new(Vec::new()));
    let noted = places.clone();
    world.wait_queue.expect_enter().returning(move |place, _| {
        noted.lock().push(place.clone());
        Ok(QueueEntered::Yes(17))
    });
    (world, places)
}

async fn in_line(casement: &UseCases) -> Box<WaitingCaller> {
    match casement.leases.acquire(&scope(), "warm", patient()).await.expect("in line") {
        Acquired::Waiting(waiting) => waiting,
        _ => panic!("no browser was idle"),
    }
}

fn granted(session: Session) -> TicketOutcome {
    TicketOutcome::Granted(Box::new(session))
}

/// Sets the outcomes that the waiter reads, one after the other.
fn finds(world: &mut World, outcomes: impl IntoIterator<Item = TicketOutcome>) {
    let mut outcomes = outcomes.into_iter().collect::<Vec<_>>().into_iter();
    world
        .wait_queue
        .expect_outcome()
        .returning(move |_| Ok(outcomes.next().expect("it looks no oftener than it must")));
}

#[tokio::test]
async fn an_idle_browser_is_leased_at_once() {
    let mut world = World::default();
    world.has_pool(pool_of_four());
    world
        .wait_queue
        .expect_take_now()
        .withf(|pool, lease, now| {
            let name = lease.name.as_ref().map(|name| name.as_str());
            (*pool, name, *now) == (pool_id(1), Some("one"), NOON)
        })
        .times(1)
        .returning(|_, _, _| Ok(ImmediateLease::Leased(Box::new(leased_session(1)))));
    world.engine.expect_hand_out().withf(|id, _| *id == browser_id(1)).times(1).returning(|_, _| Ok(()));
    let casement = world.build();
    match casement.leases.acquire(&scope(), "warm", patient()).await.expect("leased") {
        Acquired::Leased(session) => assert_eq!(*session, leased_session(1)),
        _ => panic!("a browser was idle"),
    }
    casement.clock.advance(Duration::HOUR);
    assert_eq!(casement.activity.idle(), [session_id(1)], "its idle clock runs");
}

#[tokio::test]
async fn an_idle_browser_without_an_answer_is_ended_and_the_next_is_leased_anew() {
    let mut world = World::default();
    let rows = world.keep_sessions([]);
    let stored = rows.clone();
    world.has_pool(pool_of_four());
    let mut browsers = [browser_id(2), browser_id(1)].to_vec();
    world.wait_queue.expect_take_now().times(2).returning(move |_, lease, _| {
        assert_eq!(stored.get(lease.session), None, "the id of a lease that failed is not used again");
        let session = Session { id: lease.session, browser: browsers.pop(), ..leased_session(1) };
        stored.put(session.clone());
        Ok(ImmediateLease::Leased(Box::new(session)))
    });
    world.engine.expect_hand_out().times(2).returning(|id, _| if id == browser_id(1) { Err(hung()) } else { Ok(()) });
    world.expect_cleanup(browser_id(1));
    world.expect_close(SessionId::from_ulid(nth(1)), EndReason::StartFailed);
    world.expect_wakes(1);
    match world.build().leases.acquire(&scope(), "warm", patient()).await.expect("leased") {
        Acquired::Leased(session) => assert_eq!(session.browser, Some(browser_id(2))),
        _ => panic!("a browser was idle"),
    }
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed), SessionState::Active]);
}

fn opens(url: Option<&str>) -> HandOut {
    let start_url = url.map(|url| StartUrl::parse(url).expect("a URL"));
    HandOut { start_url, abandoned_after_seconds: leased_session(1).timeout_seconds }
}

#[tokio::test]
async fn a_leased_browser_is_probed_once_and_receives_its_lease() {
    let url = "https://example.com/";
    let opening = Session { start_url: opens(Some(url)).start_url, ..leased_session(1) };
    let impatient = Session { timeout_seconds: 7, ..leased_session(1) };
    for (session, start_url, reported) in [
        (leased_session(1), None, opens(None)),
        (opening, Some(url.to_owned()), opens(Some(url))),
        // The timeout of the pool was changed before the lease.
        (impatient, None, HandOut { start_url: None, abandoned_after_seconds: 7 }),
    ] {
        let mut world = World::default();
        world.has_pool(pool_of_four());
        let (leased, browser) = (session.clone(), session.browser);
        world.wait_queue.expect_take_now().times(1).return_once(|_, _, _| Ok(ImmediateLease::Leased(Box::new(leased))));
        world.engine.expect_hand_out().times(1).returning(move |id, to| {
            assert_eq!((Some(id), &to), (browser, &reported));
            Ok(())
        });
        let input = AcquireRequest { start_url, ..patient() };
        match world.build().leases.acquire(&scope(), "warm", input).await.expect("leased") {
            Acquired::Leased(leased) => assert_eq!(*leased, session),
            _ => panic!("a browser was idle"),
        }
    }
}

#[tokio::test]
async fn without_time_to_wait_a_busy_pool_answers_at_once() {
    let none = AcquireRequest { acquire_timeout_seconds: Some(0), ..AcquireRequest::default() };
    let gone = AcquireRequest { client_timeout: Some(-Duration::SECOND), ..AcquireRequest::default() };
    for input in [none, gone] {
        let mut world = World::default();
        world.has_pool(pool_of_four());
        world.wait_queue.expect_take_now().times(1).returning(|_, _, _| Ok(ImmediateLease::Busy));
        let acquired = world.build().leases.acquire(&scope(), "warm", input).await.expect("no failure");
        assert!(matches!(acquired, Acquired::TimeUp), "neither in line nor expecting news");
    }
}

#[tokio::test]
async fn an_immediate_refusal_is_reported() {
    for (taken, name) in [(ImmediateLease::NameTaken, true), (ImmediateLease::PoolGone, false)] {
        let mut world = World::default();
        world.has_pool(pool_of_four());
        world.wait_queue.expect_take_now().times(1).returning(move |_, _, _| Ok(taken.clone()));
        match world.build().leases.acquire(&scope(), "warm", patient()).await.err().expect("refused") {
            UseCaseError::NameTaken(taken) => assert!(name && taken.name == "one"),
            UseCaseError::NotFound(missing) => {
                assert!(!name && missing == NotFound::new("browser pool", "warm"));
            }
            other => panic!("{other:?}"),
        }
    }
    let mut world = World::default();
    world.pools.expect_find().times(1).returning(|_, _| Ok(None));
    let error = world.build().leases.acquire(&scope(), "cold", patient()).await.err().expect("no such pool");
    assert!(matches!(error, UseCaseError::NotFound(missing) if missing == NotFound::new("browser pool", "cold")));
}

#[tokio::test]
async fn what_is_not_valid_takes_no_browser_and_no_place() {
    let named = BTreeMap::from([(Category::Page, true)]);
    let contradiction =
        telemetry::ConfigRequest { enabled: Some(false), browser: Some(named), ..telemetry::ConfigRequest::default() };
    for input in [
        AcquireRequest { acquire_timeout_seconds: Some(3601), ..patient() },
        AcquireRequest { acquire_timeout_seconds: Some(-1), ..patient() },
        AcquireRequest { name: Some("a/b".to_owned()), ..patient() },
        AcquireRequest { start_url: Some("nowhere".to_owned()), ..patient() },
        AcquireRequest { telemetry: Some(contradiction), ..patient() },
    ] {
        let mut world = World::default();
        world.has_pool(pool_of_four());
        let refused = world.build().leases.acquire(&scope(), "warm", input).await.err().expect("refused");
        assert!(matches!(refused, UseCaseError::Invalid(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn a_lease_merges_telemetry_of_pool_and_caller_before_anything_is_opened() {
    let mut world = World::default();
    let mut pool = pool_of_four();
    pool.config.telemetry = Capture::only([Category::Control, Category::Page]);
    world.has_pool(pool);
    let expected = Capture::only([Category::Control, Category::Console]);
    let captured = expected.clone();
    world.wait_queue.expect_take_now().times(1).returning(move |_, lease, _| {
        assert_eq!(lease.telemetry, captured);
        Ok(ImmediateLease::Leased(Box::new(Session { telemetry: lease.telemetry.clone(), ..leased_session(1) })))
    });
    let mut order = Sequence::new();
    let mut recorder = MockRecorder::new();
    let recorded = recorder.expect_capture().times(1).in_sequence(&mut order);
    recorded.withf(move |session| session.telemetry == expected).returning(|_| Ok(()));
    world.recorder = Some(recorder);
    world.engine.expect_hand_out().times(1).in_sequence(&mut order).returning(|_, _| Ok(()));
    let request = BTreeMap::from([(Category::Page, false), (Category::Console, true)]);
    let request = telemetry::ConfigRequest { browser: Some(request), ..telemetry::ConfigRequest::default() };
    let input = AcquireRequest { telemetry: Some(request), ..patient() };
    let acquired = world.build().leases.acquire(&scope(), "warm", input).await.expect("leased");
    assert!(matches!(acquired, Acquired::Leased(_)));
}

#[tokio::test]
async fn a_wait_ends_when_the_pool_is_deleted_or_the_name_is_taken() {
    let (mut world, _) = busy([WaiterEvent::Look]);
    finds(&mut world, [TicketOutcome::Waiting, TicketOutcome::NameTaken]);
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    match casement.leases.wait(&mut waiting).await.err().expect("refused") {
        UseCaseError::NameTaken(taken) => assert_eq!(taken.name, "one"),
        other => panic!("{other:?}"),
    }
    let mut world = World::default();
    world.has_pool(pool_of_four());
    world.wait_queue.expect_take_now().times(1).returning(|_, _, _| Ok(ImmediateLease::Busy));
    world.tickets.expect_expect().times(1).returning(|_| Box::new(MockWaiter::new()));
    let mut entered = [QueueEntered::Yes(17), QueueEntered::PoolGone].into_iter();
    world.wait_queue.expect_enter().times(2).returning(move |_, _| Ok(entered.next().expect("twice")));
    finds(&mut world, [TicketOutcome::Gone]);
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    match casement.leases.wait(&mut waiting).await.err().expect("refused") {
        UseCaseError::NotFound(missing) => assert_eq!(missing, NotFound::new("browser pool", "warm")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_wait_that_fails_in_the_store_leaves_no_ticket_and_no_lease() {
    let (mut world, _) = busy([]);
    let rows = world.keep_sessions([leased_session(1)]);
    world.wait_queue.expect_outcome().times(1).returning(|_| Err(store_down()));
    world.wait_queue.expect_leave().times(1).returning(|_| Ok(granted(leased_session(1))));
    world.expect_close(session_id(1), EndReason::Undelivered);
    world.expect_wakes(1);
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    assert!(matches!(casement.leases.wait(&mut waiting).await, Err(UseCaseError::Store(_))));
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::Undelivered)]);
}

#[tokio::test]
async fn an_uncertain_queue_entry_is_removed() {
    let mut world = World::default();
    world.has_pool(pool_of_four());
    world.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Busy));
    world.tickets.expect_expect().returning(|_| Box::new(MockWaiter::new()));
    world.wait_queue.expect_enter().times(1).returning(|_, _| Err(store_down()));
    world.wait_queue.expect_leave().times(1).returning(|_| Err(store_down()));
    let error = world.build().leases.acquire(&scope(), "warm", patient()).await.err().expect("the store is down");
    assert!(matches!(error, UseCaseError::Store(_)), "{error:?}");
}

/// The response reported an error, so the caller may have retried. The session may have been found and used.
#[tokio::test]
async fn an_uncertain_lease_ends_with_its_browser_once_the_store_answers() {
    let mut world = World::default();
    world.has_pool(pool_of_four());
    let rows = world.keep_sessions([]);
    let stored = rows.clone();
    world.wait_queue.expect_take_now().times(1).returning(move |_, lease, _| {
        stored.put(Session { id: lease.session, ..leased_session(1) });
        Err(store_down())
    });
    world.connections.expect_close().times(1).return_const(());
    world.expect_wakes(1);
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    let refused = casement.leases.acquire(&scope(), "warm", patient()).await;
    assert!(matches!(refused, Err(UseCaseError::Store(_))));
    assert_eq!(rows.states(), [SessionState::Active]);

    casement.leases.reconcile().await.expect("it answers");

    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
    casement.leases.reconcile().await.expect("nothing is left to do");
}

#[tokio::test]
async fn reconciling_with_a_broken_store_is_given_up() {
    let mut world = World::default();
    let refuses = || StoreError::Broken { operation: "test.store", source: "it cannot be read".into() };
    world.wait_queue.expect_leave().times(3).returning(move |_| Err(refuses()));
    let casement = world.build();
    casement.leases.abandon(TicketId::from_ulid(nth(1))).await.expect_err("refused");
    casement.leases.reconcile().await.expect_err("refused");
    casement.clock.advance(Duration::MINUTE);
    casement.leases.reconcile().await.expect("given up");
    casement.leases.reconcile().await.expect("nothing is left to do");
}

/// A waiter that never receives an event.
struct Asleep;

#[async_trait]
impl Waiter for Asleep {
    async fn wait(&mut self, _: MonotonicTime) -> WaiterEvent {
        std::future::pending().await
    }
}

/// Runs a lease whose caller disconnects while it waits in the queue.
async fn goes_away(mut world: World) -> (Result<Acquired, UseCaseError>, UseCases) {
    world.has_pool(pool_of_four());
    world.wait_queue.expect_take_now().times(1).returning(|_, _, _| Ok(ImmediateLease::Busy));
    world.tickets.expect_expect().times(1).returning(|_| Box::new(Asleep));
    world.wait_queue.expect_enter().times(1).returning(|_, _| Ok(QueueEntered::Yes(1)));
    world.wait_queue.expect_outcome().times(1).returning(|_| Ok(TicketOutcome::Waiting));
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    (casement.leases.wait_for(&mut waiting, std::future::ready(())).await, casement)
}

#[tokio::test]
async fn a_queued_caller_that_disconnects_leaves_the_queue() {
    let mut world = World::default();
    world.wait_queue.expect_leave().times(1).returning(|_| Ok(TicketOutcome::Gone));
    assert!(matches!(Box::pin(goes_away(world)).await.0, Ok(Acquired::TimeUp)));
}

#[tokio::test]
async fn a_browser_granted_during_a_disconnect_goes_to_the_next_waiter() {
    let mut world = World::default();
    let rows = world.keep_sessions([leased_session(1)]);
    world.wait_queue.expect_leave().times(1).returning(|_| Ok(granted(leased_session(1))));
    world.engine.expect_hand_out().never();
    world.expect_close(session_id(1), EndReason::Undelivered);
    world.expect_wakes(1);
    assert!(matches!(Box::pin(goes_away(world)).await.0, Ok(Acquired::TimeUp)));
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::Undelivered)]);
}

/// The caller may have been granted a browser, so its ticket is reconciled when the store answers again.
#[tokio::test]
async fn a_disconnect_during_a_store_outage_leaves_no_ticket_and_no_lease() {
    let mut world = World::default();
    let rows = world.keep_sessions([]);
    let mut answers = [Err(store_down()), Err(store_down()), Ok(TicketOutcome::Gone)].into_iter();
    world.wait_queue.expect_leave().times(3).returning(move |_| answers.next().expect("an answer"));
    world.connections.expect_close().times(1).return_const(());
    world.expect_wakes(1);
    world.expect_cleanup(browser_id(1));
    let (refused, casement) = Box::pin(goes_away(world)).await;
    assert!(matches!(refused, Err(UseCaseError::Store(_))));
    // The test's ids count up, so the first one is that of the session.
    rows.put(Session { id: SessionId::from_ulid(nth(1)), ..leased_session(1) });
    casement.leases.reconcile().await.expect("cleared away");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
}

#[tokio::test]
async fn an_archived_project_leases_and_flushes_nothing() {
    let casement = World::default().build();
    let refused = casement.leases.acquire(&archived(), "warm", patient()).await;
    assert!(matches!(refused, Err(UseCaseError::Archived(_))));
    let refused = casement.pools.flush(&archived(), "warm").await;
    assert!(matches!(refused, Err(UseCaseError::Archived(_))));
}

#[tokio::test]
async fn an_abandoned_ticket_leaves_the_queue() {
    let mut world = World::default();
    world.wait_queue.expect_leave().times(1).returning(|_| Ok(TicketOutcome::Gone));
    world.build().leases.abandon(TicketId::from_ulid(nth(1))).await.expect("left");
}

#[tokio::test]
async fn a_browser_granted_to_an_abandoned_ticket_goes_to_the_next_waiter() {
    let mut world = World::default();
    let rows = world.keep_sessions([leased_session(1)]);
    world.wait_queue.expect_leave().times(1).returning(|_| Ok(granted(leased_session(1))));
    world.expect_close(session_id(1), EndReason::Undelivered);
    world.expect_wakes(1);
    world.build().leases.abandon(TicketId::from_ulid(nth(1))).await.expect("left");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::Undelivered)]);
}

#[tokio::test]
async fn the_wait_is_as_long_as_requested_and_within_the_client_timeout() {
    for (requested, client_timeout, rate, seconds) in [
        (Some(30), None, 25, 30),
        (Some(30), Some(10), 25, 10),
        (Some(30), Some(60), 25, 30),
        (None, None, 25, 240),
        (None, None, 100, 60),
        (None, None, 1, 3600),
        (None, Some(5), 25, 5),
    ] {
        let mut world = World::default();
        let mut filled = pool_of_four();
        filled.config.fill_rate_per_minute = rate;
        world.has_pool(filled);
        world.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Busy));
        world.wait_queue.expect_enter().returning(|_, _| Ok(QueueEntered::Yes(1)));
        world.wait_queue.expect_outcome().returning(|_| Ok(TicketOutcome::Waiting));
        world.wait_queue.expect_leave().returning(|_| Ok(TicketOutcome::Gone));
        let waited_until = Arc::new(Mutex::new(MonotonicTime::default()));
        let noted = waited_until.clone();
        world.tickets.expect_expect().returning(move |_| {
            let noted = noted.clone();
            let mut turn = MockWaiter::new();
            turn.expect_wait().returning(move |until| {
                *noted.lock() = until;
                WaiterEvent::TimeUp
            });
            Box::new(turn)
        });
        let casement = world.build();
        let input = AcquireRequest {
            acquire_timeout_seconds: requested,
            client_timeout: client_timeout.map(Duration::seconds),
            ..AcquireRequest::default()
        };
        let Acquired::Waiting(mut waiting) = casement.leases.acquire(&scope(), "warm", input).await.expect("in line")
        else {
            panic!("no browser was idle")
        };
        assert!(matches!(casement.leases.wait(&mut waiting).await, Ok(Acquired::TimeUp)));
        assert_eq!(*waited_until.lock(), MonotonicTime::after_origin(Duration::seconds(seconds)));
    }
}

#[tokio::test]
async fn a_release_ends_the_whole_sandbox_and_wakes_the_pool() {
    let mut world = World::default();
    let rows = world.keep_sessions([leased_session(1)]);
    world.has_pool(pool_of_four());
    world.expect_close(session_id(1), EndReason::Released);
    world.expect_cleanup(browser_id(1));
    world.expect_wakes(1);
    world.build().leases.release(&scope(), "warm", &session_id(1).to_string()).await.expect("released");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::Released)]);
}

#[tokio::test]
async fn only_a_session_that_is_leased_from_this_pool_can_be_released() {
    let elsewhere = Session { pool: Some(PoolRef { id: pool_id(2), name: None }), ..session(2) };
    let over = Session { state: SessionState::Ended(EndReason::Released), ..leased_session(3) };
    let all = [session(1), elsewhere, over];
    for which in [session_id(1), session_id(2), session_id(3), session_id(4)].map(|id| id.to_string()) {
        let mut world = World::default();
        let rows = world.keep_sessions(all.clone());
        let before = rows.states();
        world.has_pool(pool_of_four());
        let error = world.build().leases.release(&scope(), "warm", &which).await.expect_err("not leased");
        assert!(matches!(error, ReleaseError::Specific(NotLeased(text)) if text == which));
        assert_eq!(rows.states(), before);
    }
    let mut world = World::default();
    world.has_pool(pool_of_four());
    let error = world.build().leases.release(&scope(), "warm", "a name").await.expect_err("not an identifier");
    assert!(matches!(error, ReleaseError::Specific(NotLeased(_))));
}

#[tokio::test]
async fn a_release_distinguishes_a_missing_pool_from_a_store_error() {
    let mut world = World::default();
    world.pools.expect_find().times(1).returning(|_, _| Ok(None));
    let error = world.build().leases.release(&scope(), "warm", "x").await.expect_err("no pool");
    assert!(matches!(error, ReleaseError::NotFound(missing) if missing.kind == "browser pool"));
    let mut world = World::default();
    world.has_pool(Pool { growth: Growth { allowance: 0, since: NOON }, ..pool_of_four() });
    world.sessions.expect_find().times(1).returning(|_| Err(store_down()));
    let which = session_id(1).to_string();
    let error = world.build().leases.release(&scope(), "warm", &which).await.expect_err("the store is down");
    assert!(matches!(error, ReleaseError::Store(_)));
}
