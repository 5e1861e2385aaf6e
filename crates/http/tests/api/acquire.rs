//! Acquire requests: responses, waits and disconnecting callers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use casement_domain::{
    MonotonicTime,
    browser::Started,
    pool::{ImmediateLease, QueueEntered, TicketOutcome, Waiter, WaiterEvent},
    session::{Created, EndReason, SessionState},
    store_error::Replaced,
    testing::{leased_session, pool, session_id},
};
pub(super) use casement_test_support::until;

use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Semaphore,
};

use super::support::{Key, Ports, TestApi, request};

pub(super) const PATH: &str = "/browser_pools/x/acquire";

/// A waiter that the test controls.
struct ControlledWaiter(Arc<Semaphore>, WaiterEvent);

#[async_trait]
impl Waiter for ControlledWaiter {
    async fn wait(&mut self, _: MonotonicTime) -> WaiterEvent {
        self.0.acquire().await.unwrap().forget();
        self.1
    }
}

/// Returns the ports of a pool whose callers wait until `turn` has a permit.
pub(super) fn waiting(turn: &Arc<Semaphore>, event: WaiterEvent) -> Ports {
    let mut ports = Ports::default();
    let turn = turn.clone();
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
    ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
    ports.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Busy));
    ports.wait_queue.expect_enter().returning(|_, _| Ok(QueueEntered::Yes(1)));
    ports.tickets.expect_expect().returning(move |_| Box::new(ControlledWaiter(turn.clone(), event)));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports.wake.expect_wake().return_const(());
    ports
}

pub(super) fn acquire() -> Vec<u8> {
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    request("POST", PATH, &[&key], "{}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_browser_is_returned_at_once() {
    let mut ports = Ports::default();
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
    ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
    ports.wait_queue.expect_take_now().return_once(|_, _, _| Ok(ImmediateLease::Leased(Box::new(leased_session(1)))));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    let reply = TestApi::start(ports).post(PATH, json!({ "name": "n" })).await;
    assert_eq!(reply.status, 200, "{reply}");
    assert_eq!(reply.json()["session_id"], session_id(1).to_string());
    assert_eq!(reply.json()["pool"], json!({ "id": casement_domain::testing::pool_id(1).to_string() }));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_profile_of_a_lease_is_in_its_record() {
    let mut ports = Ports::default();
    let id = casement_domain::ProfileId::from_ulid(ulid::Ulid::from_parts(13, 1));
    let profile = move || casement_domain::testing::profile(id, "login");
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
    ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
    ports.profiles.expect_find().returning(move |_, _| Ok(Some(profile())));
    ports.profiles.expect_living().returning(move |_| Ok(Some(profile())));
    ports.profiles.expect_of_ids().returning(move |_| Ok(vec![profile()]));
    ports.profiles.expect_used().times(1).returning(|_, _| Ok(()));
    ports.sessions.expect_set_profile().times(1).returning(|_, _| Ok(true));
    ports.wait_queue.expect_take_now().return_once(|_, _, _| Ok(ImmediateLease::Leased(Box::new(leased_session(1)))));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    let body = json!({ "profile": { "name": "login", "save_changes": true } });
    let reply = TestApi::start(ports).post(PATH, body).await;
    assert_eq!(reply.status, 200, "{reply}");
    assert_eq!(
        (&reply.json()["profile"]["name"], &reply.json()["profile_save_changes"]),
        (&json!("login"), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_response_names_every_refused_field() {
    let api = TestApi::start(Ports::default());
    let body = |telemetry| {
        json!({
            "telemetry": telemetry, "tags": { "": "x" }, "start_url": "x", "name": "a/b",
            "acquire_timeout_seconds": 3601,
        })
    };
    let known = "console, page, interaction, network, control, connection, system, screenshot, captcha";
    let category = format!("not_allowed: telemetry.browser.x: is not one of {known}");
    let details = [
        "out_of_range: acquire_timeout_seconds: must be from 0 to 3600",
        "invalid_format: name: may not hold '/'",
        "invalid_format: start_url: must be an absolute URL",
        "too_short: tags: a key must have at least 1 character",
        &category,
    ];
    assert_eq!(api.post(PATH, body(json!({ "browser": { "x": {} } }))).await.details(), details);
    assert_eq!(api.post(PATH, body(json!(null))).await.details(), details[..4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_does_not_wait_gets_204() {
    let mut ports = Ports::default();
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
    ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
    ports.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Busy));
    let reply = TestApi::start(ports).post(PATH, json!({ "acquire_timeout_seconds": 0 })).await;
    assert_eq!(reply.to_string(), "204\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_a_browser_or_204() {
    for (event, outcome, status) in [
        (WaiterEvent::Look, TicketOutcome::Granted(Box::new(leased_session(1))), 200),
        (WaiterEvent::TimeUp, TicketOutcome::Gone, 204),
        (WaiterEvent::Stopping, TicketOutcome::Gone, 204),
        (WaiterEvent::Look, TicketOutcome::Gone, 404),
        (WaiterEvent::Look, TicketOutcome::NameTaken, 409),
    ] {
        let turn = Arc::new(Semaphore::new(1));
        let mut ports = waiting(&turn, event);
        ports.wait_queue.checkpoint();
        ports.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Busy));
        ports.wait_queue.expect_enter().times(1).returning(|_, _| Ok(QueueEntered::Yes(1)));
        // A ticket that is gone enters again, unless the pool is gone.
        ports.wait_queue.expect_enter().returning(|_, _| Ok(QueueEntered::PoolGone));
        ports.wait_queue.expect_outcome().times(1).return_once(|_| Ok(TicketOutcome::Waiting));
        let last = outcome.clone();
        ports.wait_queue.expect_outcome().return_once(move |_| Ok(last));
        let left = outcome.clone();
        ports.wait_queue.expect_leave().return_once(move |_| Ok(left));
        let reply = TestApi::start(ports).post(PATH, "").await;
        assert_eq!(reply.status, status, "{event:?} {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_is_no_longer_than_the_clients_timeout() {
    let turn = Arc::new(Semaphore::new(1));
    let mut ports = waiting(&turn, WaiterEvent::TimeUp);
    ports.wait_queue.expect_outcome().returning(|_| Ok(TicketOutcome::Waiting));
    ports.wait_queue.expect_leave().returning(|_| Ok(TicketOutcome::Gone));
    ports.wait_queue.checkpoint();
    let until = Arc::new(parking_lot::Mutex::new(None));
    let seen = until.clone();
    ports.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Busy));
    ports.wait_queue.expect_outcome().returning(|_| Ok(TicketOutcome::Waiting));
    ports.wait_queue.expect_leave().returning(|_| Ok(TicketOutcome::Gone));
    ports.wait_queue.expect_enter().returning(move |place, _| {
        *seen.lock() = Some(place.lasts);
        Ok(QueueEntered::Yes(1))
    });
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let reply = api.request("POST", PATH, &[&key, "X-Stainless-Read-Timeout: 10"], "").await;
    assert_eq!(reply.status, 204);
    // The wait of 8 seconds, and the 30 seconds for which a ticket stays valid after its wait.
    assert_eq!(*until.lock(), Some(time::Duration::seconds(38)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_disconnects_leaves_the_queue_at_once() {
    let turn = Arc::new(Semaphore::new(0));
    let (queued, left) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut ports = waiting(&turn, WaiterEvent::Look);
    let queued_flag = queued.clone();
    ports.wait_queue.expect_outcome().returning(move |_| {
        queued_flag.store(true, Ordering::SeqCst);
        Ok(TicketOutcome::Waiting)
    });
    let leaving = left.clone();
    ports.wait_queue.expect_leave().returning(move |_| {
        leaving.fetch_add(1, Ordering::SeqCst);
        Ok(TicketOutcome::Gone)
    });
    let api = TestApi::start(ports);
    let mut stream = api.connect().await;
    stream.write_all(&acquire()).await.unwrap();
    until("in the queue", || queued.load(Ordering::SeqCst)).await;
    assert_eq!(left.load(Ordering::SeqCst), 0);
    drop(stream);
    until("left", || left.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_for_a_disconnected_caller_is_returned() {
    let turn = Arc::new(Semaphore::new(0));
    let (queued, back) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut ports = waiting(&turn, WaiterEvent::Look);
    let queued_flag = queued.clone();
    ports.wait_queue.expect_outcome().returning(move |_| {
        queued_flag.store(true, Ordering::SeqCst);
        Ok(TicketOutcome::Waiting)
    });
    ports.wait_queue.expect_leave().returning(|_| Ok(TicketOutcome::Granted(Box::new(leased_session(1)))));
    ports.sessions.expect_find().returning(|_| Ok(Some(leased_session(1))));
    let ended = back.clone();
    ports.sessions.expect_end().returning(move |_, next| {
        ended.store(next.state == SessionState::Ended(EndReason::Undelivered), Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    let api = TestApi::start(ports);
    let mut stream = api.connect().await;
    stream.write_all(&acquire()).await.unwrap();
    until("in the queue", || queued.load(Ordering::SeqCst)).await;
    drop(stream);
    until("given back", || back.load(Ordering::SeqCst)).await;
}

/// The caller disconnects while its ticket is read: a transaction locks the row and must end before the ticket can
/// leave the queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_disconnects_while_its_ticket_is_read_leaves_the_queue() {
    let turn = Arc::new(Semaphore::new(0));
    let (looking, left) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut ports = Ports { queue_delay: Duration::from_secs(2), ..waiting(&turn, WaiterEvent::Look) };
    let queued_flag = looking.clone();
    ports.wait_queue.expect_outcome().returning(move |_| {
        queued_flag.store(true, Ordering::SeqCst);
        Ok(TicketOutcome::Waiting)
    });
    let leaving = left.clone();
    ports.wait_queue.expect_leave().returning(move |_| {
        leaving.store(true, Ordering::SeqCst);
        Ok(TicketOutcome::Gone)
    });
    let api = TestApi::start(ports);
    let mut stream = api.connect().await;
    stream.write_all(&acquire()).await.unwrap();
    until("looking", || looking.load(Ordering::SeqCst)).await;
    drop(stream);
    until("left", || left.load(Ordering::SeqCst)).await;
}

/// The caller disconnects during the hand-out, while the browser is probed.
#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_at_the_moment_of_the_hand_out_returns_the_browser() {
    let (reached, back) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut ports = Ports { queue_delay: Duration::from_secs(2), ..Ports::default() };
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
    ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
    let taking = reached.clone();
    ports.wait_queue.expect_take_now().return_once(move |_, _, _| {
        taking.store(true, Ordering::SeqCst);
        Ok(ImmediateLease::Leased(Box::new(leased_session(1))))
    });
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports.wake.expect_wake().return_const(());
    ports.sessions.expect_find().returning(|_| Ok(Some(leased_session(1))));
    let ended = back.clone();
    ports.sessions.expect_end().returning(move |_, next| {
        ended.store(next.state == SessionState::Ended(EndReason::Undelivered), Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    let api = TestApi::start(ports);
    let mut stream = api.connect().await;
    stream.write_all(&acquire()).await.unwrap();
    until("taking", || reached.load(Ordering::SeqCst)).await;
    drop(stream);
    until("given back", || back.load(Ordering::SeqCst)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_with_an_undelivered_response_is_returned_and_a_delivered_one_stays() {
    for how in ["closed before", "read and closed", "read and kept"] {
        let (taken, back) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let takes = if how == "closed before" { Duration::from_secs(1) } else { Duration::ZERO };
        let mut ports = Ports { queue_delay: takes, ..Ports::default() };
        ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
        ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
        let taking = taken.clone();
        ports.wait_queue.expect_take_now().return_once(move |_, _, _| {
            taking.store(true, Ordering::SeqCst);
            Ok(ImmediateLease::Leased(Box::new(leased_session(1))))
        });
        ports.engine.expect_hand_out().returning(|_, _| Ok(()));
        ports.wake.expect_wake().return_const(());
        ports.sessions.expect_find().returning(|_| Ok(Some(leased_session(1))));
        let ended = back.clone();
        ports.sessions.expect_end().returning(move |_, _| {
            ended.fetch_add(1, Ordering::SeqCst);
            Ok(Replaced::Yes)
        });
        let api = TestApi::start(ports);
        let mut stream = api.connect().await;
        let keep_alive = |request: Vec<u8>| String::from_utf8(request).unwrap().replace("Connection: close\r\n", "");
        stream.write_all(keep_alive(acquire()).as_bytes()).await.unwrap();
        until("taken", || taken.load(Ordering::SeqCst)).await;
        match how {
            "closed before" => drop(stream),
            _ => {
                let mut answer = [0; 4096];
                assert!(stream.read(&mut answer).await.unwrap() > 0);
                if how == "read and closed" {
                    drop(stream);
                } else {
                    // The result is known before the next request on the connection gets its response.
                    stream.write_all(keep_alive(request("GET", "/healthz", &[], "")).as_bytes()).await.unwrap();
                    assert!(stream.read(&mut answer).await.unwrap() > 0);
                }
            }
        }
        if how == "closed before" {
            until("given back", || back.load(Ordering::SeqCst) == 1).await;
        } else if how.starts_with("read") {
            assert_eq!(api.get("/healthz").await.status, 200);
            assert_eq!(back.load(Ordering::SeqCst), 0, "{how}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_created_for_a_disconnected_caller_ends() {
    let (reached, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut ports = Ports::default();
    ports.spares.expect_take().returning(|_| None);
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    let starting = reached.clone();
    ports.engine.expect_start().returning(move |_| {
        starting.store(true, Ordering::SeqCst);
        // The start takes longer than a disconnect and its detection.
        std::thread::sleep(Duration::from_secs(2));
        Ok(Started::default())
    });
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports.sessions.expect_find().returning(|_| Ok(Some(casement_domain::testing::session(1))));
    let ending = ended.clone();
    ports.sessions.expect_end().returning(move |_, next| {
        ending.store(next.state == SessionState::Ended(EndReason::Undelivered), Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let mut stream = api.connect().await;
    stream.write_all(&request("POST", "/browsers", &[&key], "{}")).await.unwrap();
    until("starting", || reached.load(Ordering::SeqCst)).await;
    drop(stream);
    until("ended", || ended.load(Ordering::SeqCst)).await;
}
