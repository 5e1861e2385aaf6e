//! The routes `/invocations`: synchronous and asynchronous invocations, the two ways to end one, and its browsers.

use std::sync::atomic::{AtomicUsize, Ordering};

use casement_domain::{
    Replaced, StoreError,
    deployment::{DeploymentStatus, Line, MockChangeWaiter, WakeReason},
    invocation::{Invocation, InvocationStatus, InvocationStored},
    organization::{Limit, LimitExceeded},
    page::Listed,
    testing::{NOON, app_version, invocation, project_id, session},
};
use pretty_assertions::assert_eq;
use serde_json::json;
use time::Duration;

use super::{
    deployments::frames,
    support::{Key, Ports, TestApi},
};

fn id() -> String {
    invocation(1).id.to_string()
}

fn ended() -> Invocation {
    Invocation {
        status: InvocationStatus::Succeeded,
        output: Some("{\"n\":1}".to_owned()),
        finished_at: Some(NOON + Duration::SECOND),
        ..invocation(1)
    }
}

/// Returns ports with the running app `shop`. A waiter receives `changes` notifications before its timeout.
fn running(changes: usize) -> Ports {
    let mut ports = Ports::default();
    ports.deployments.expect_find_app().returning(|project, name, version| {
        assert_eq!(project, project_id());
        Ok((name == "shop" && version == "v1").then(|| (app_version(1), DeploymentStatus::Running)))
    });
    let waits = AtomicUsize::new(0);
    let waits = std::sync::Arc::new(waits);
    ports.change_notifier.expect_expect().returning(move |_| {
        let waits = waits.clone();
        let mut waiting = MockChangeWaiter::new();
        waiting.expect_next().returning(move |until| {
            assert!(until.is_some());
            if waits.fetch_add(1, Ordering::Relaxed) < changes { WakeReason::Changed } else { WakeReason::TimeUp }
        });
        Box::new(waiting)
    });
    ports
}

const BUY: &str = r#"{"app_name":"shop","action_name":"buy","version":"v1","payload":"[1]"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_gets_the_result_and_another_gets_the_queued_state() {
    let mut ports = running(2);
    ports.invocations.expect_create().times(2).returning(|_, invocation| {
        assert_eq!((invocation.payload.as_deref(), invocation.status), (Some("[1]"), InvocationStatus::Queued));
        Ok(InvocationStored::Yes)
    });
    let mut looks = 0;
    ports.invocations.expect_get().times(2).returning(move |id| {
        looks += 1;
        let now = if looks == 1 { InvocationStatus::Running } else { InvocationStatus::Succeeded };
        Ok(Some(Invocation { id, status: now, output: (looks == 2).then(|| "2".to_owned()), ..invocation(1) }))
    });
    let api = TestApi::start(ports);
    let reply = api.post("/invocations", BUY).await;
    assert_eq!(reply.status, 200, "{reply}");
    let body = reply.json();
    assert_eq!((body["status"].as_str(), body["output"].as_str()), (Some("succeeded"), Some("2")));
    assert_eq!(body["started_at"], json!(null), "the short form");
    let mut input: serde_json::Value = serde_json::from_str(BUY).unwrap();
    (input["async"], input["async_timeout_seconds"]) = (true.into(), 20.into());
    let reply = api.post("/invocations", input).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (202, Some("queued")), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_its_progress_before_the_client_times_out() {
    let mut ports = running(0);
    ports.invocations.expect_create().times(1).returning(|_, invocation| {
        assert_eq!(invocation.timeout_seconds, 900, "what is said of callers who do not wait means nothing");
        Ok(InvocationStored::Yes)
    });
    ports
        .invocations
        .expect_get()
        .returning(|id| Ok(Some(Invocation { id, status: InvocationStatus::Running, ..invocation(1) })));
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let mut input: serde_json::Value = serde_json::from_str(BUY).unwrap();
    input["async_timeout_seconds"] = 9.into();
    let reply = api.request("POST", "/invocations", &[&key, "X-Stainless-Read-Timeout: 4"], &input.to_string()).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (202, Some("running")), "{reply}");
}

/// A client would retry a failed call, and the action would run again.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_outage_during_a_wait_does_not_fail_the_accepted_call() {
    let mut ports = running(2);
    ports.invocations.expect_create().times(1).returning(|_, _| Ok(InvocationStored::Yes));
    let mut looks = 0;
    ports.invocations.expect_get().times(2).returning(move |id| {
        looks += 1;
        if looks == 1 {
            return Err(StoreError::unavailable("invocation.get", "away"));
        }
        Ok(Some(Invocation { id, status: InvocationStatus::Succeeded, ..invocation(1) }))
    });
    let reply = TestApi::start(ports).post("/invocations", BUY).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("succeeded")), "{reply}");

    let mut ports = running(0);
    ports.invocations.expect_create().times(1).returning(|_, _| Ok(InvocationStored::Yes));
    ports.invocations.expect_get().returning(|_| Err(StoreError::unavailable("invocation.get", "away")));
    let reply = TestApi::start(ports).post("/invocations", BUY).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (202, Some("queued")), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_at_most_five_minutes_and_two_seconds_below_the_client_timeout() {
    for (header, seconds) in [
        ("X-Other: 1", 300),
        ("X-Stainless-Read-Timeout: 600", 300),
        ("X-Stainless-Read-Timeout: 60", 58),
        ("X-Stainless-Timeout: 120", 118),
        ("X-Stainless-Lang: js", 58),
    ] {
        let mut ports = Ports::default();
        ports.deployments.expect_find_app().returning(|_, _, _| Ok(Some((app_version(1), DeploymentStatus::Running))));
        ports.invocations.expect_create().returning(|_, _| Ok(InvocationStored::Yes));
        ports
            .invocations
            .expect_get()
            .returning(|id| Ok(Some(Invocation { id, status: InvocationStatus::Running, ..invocation(1) })));
        ports.change_notifier.expect_expect().returning(move |_| {
            let mut waiting = MockChangeWaiter::new();
            waiting.expect_next().returning(move |until| {
                assert_eq!(until, Some(NOON + Duration::seconds(seconds)));
                WakeReason::TimeUp
            });
            Box::new(waiting)
        });
        let api = TestApi::start(ports);
        let key = format!("Authorization: Bearer {}", Key::Organization.text());
        let reply = api.request("POST", "/invocations", &[&key, header], BUY).await;
        assert_eq!(reply.status, 202, "{header}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_that_is_not_possible_is_refused_with_its_reason() {
    let with = |name: &str, value: serde_json::Value| {
        let mut input: serde_json::Value = serde_json::from_str(BUY).unwrap();
        input[name] = value;
        input
    };
    let patient = |seconds: i64| {
        let mut input = with("async", true.into());
        input["async_timeout_seconds"] = seconds.into();
        input
    };
    for (input, status, code, part) in [
        (with("app_name", "x".into()), 404, "not_found", "app x v1"),
        (with("version", "v2".into()), 404, "not_found", "app shop v2"),
        (with("action_name", "steal".into()), 404, "not_found", "action steal of shop v1"),
        (with("payload", "{".into()), 400, "invalid_input", "payload"),
        (with("payload", json!({})), 400, "invalid_input", "payload"),
        (patient(9), 400, "invalid_input", "async_timeout_seconds"),
        (patient(3601), 400, "invalid_input", "async_timeout_seconds"),
        (with("async", "true".into()), 400, "invalid_input", "async"),
        (json!({}), 400, "invalid_input", "3 fields"),
    ] {
        let reply = TestApi::start(running(0)).post("/invocations", &input).await;
        assert_eq!((reply.status, &*reply.code()), (status, code), "{input}: {reply}");
        assert!(reply.text().contains(part), "{part}: {reply}");
    }
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    let reply = TestApi::start(running(0)).post("/invocations", with("payload", long.into())).await;
    assert!(reply.details()[0].starts_with("too_long: payload:"), "{reply}");

    let limit = LimitExceeded { limit: Limit::ProjectInvocations, value: 1, used: 1, requested: 1 };
    for (stored, status, code) in [
        (InvocationStored::LimitExceeded(limit), 429, "limit_exceeded"),
        (InvocationStored::NotRunning, 409, "invalid_state"),
        (InvocationStored::ProjectGone, 404, "not_found"),
    ] {
        let mut ports = running(0);
        ports.invocations.expect_create().times(1).returning(move |_, _| Ok(stored));
        let reply = TestApi::start(ports).post("/invocations", BUY).await;
        assert_eq!((reply.status, &*reply.code()), (status, code), "{reply}");
    }
    let mut ports = Ports::default();
    ports.deployments.expect_find_app().returning(|_, _, _| Ok(Some((app_version(1), DeploymentStatus::Stopped))));
    let reply = TestApi::start(ports).post("/invocations", BUY).await;
    assert_eq!((reply.status, &*reply.code()), (409, "invalid_state"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_invocation_ends_with_its_browsers_and_a_finished_one_keeps_them() {
    for (status, reason) in [("failed", Some("canceled")), ("succeeded", None)] {
        let mut ports = Ports::default();
        ports.invocations.expect_find().returning(|_, _| Ok(Some(invocation(1))));
        ports.invocations.expect_replace().times(1).returning(move |_, next| {
            assert_eq!((next.status.as_str(), next.status_reason.as_deref()), (status, reason));
            Ok(Replaced::Yes)
        });
        let cancels = usize::from(status == "failed");
        ports.sessions.expect_of_invocation().times(cancels).returning(|_| Ok(Vec::new()));
        let body = json!({ "status": status, "output": "{\"late\": 1.50}" });
        let reply = TestApi::start(ports).patch(&format!("/invocations/{}", id()), body).await;
        assert_eq!((reply.status, reply.json()["output"].as_str()), (200, Some("{\"late\": 1.50}")), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_session_is_not_moved_and_an_invalid_move_changes_nothing() {
    let mut ports = Ports::default();
    ports.invocations.expect_find().returning(|_, _| Ok(Some(ended())));
    let api = TestApi::start(ports);
    let path = format!("/invocations/{}", id());
    let reply = api.patch(&path, r#"{"status":"succeeded"}"#).await;
    assert_eq!((reply.status, &*reply.code()), (409, "invalid_state"), "{reply}");
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    for (body, expected) in [
        ("{}", "required: status:"),
        (r#"{"status":"running"}"#, "not_allowed: status:"),
        (r#"{"status":"failed","output":"{"}"#, "invalid_format: output:"),
        (r#"{"status":"failed","output":1}"#, "invalid_type: output:"),
    ] {
        let reply = api.patch(&path, body).await;
        assert_eq!(reply.status, 400, "{reply}");
        assert!(reply.details()[0].starts_with(expected), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_or_foreign_invocation_is_not_found_on_every_route() {
    let mut ports = Ports::default();
    ports.invocations.expect_find().returning(|_, _| Ok(None));
    let api = TestApi::start(ports);
    for id in [id().as_str(), "no-name!"] {
        let reply = api.patch(&format!("/invocations/{id}"), "{}").await;
        assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_apply_their_filters_and_streams_send_state_and_logs() {
    let mut ports = Ports::default();
    ports.invocations.expect_list().times(1).returning(|_, filter, _| {
        assert_eq!(filter.status, Some(InvocationStatus::Succeeded));
        assert_eq!(filter.since, Some(NOON - Duration::HOUR));
        Ok(Listed { items: vec![ended()], next_offset: None })
    });
    ports.invocations.expect_find().returning(|_, _| Ok(Some(ended())));
    ports.invocations.expect_get().returning(|_| Ok(Some(ended())));
    ports.lines.expect_page().returning(|_, _| Ok(vec![Line { number: 0, at: NOON, text: "hello".to_owned() }]));
    ports.change_notifier.expect_expect().returning(|_| Box::new(MockChangeWaiter::new()));
    let api = TestApi::start(ports);
    let reply = api.get("/invocations?status=succeeded&since=1h").await;
    let record = json!({
        "id": id(), "app_name": "shop", "version": "v1", "action_name": "buy", "status": "succeeded",
        "started_at": "2026-12-01T12:00:01.000000Z", "finished_at": "2026-12-01T12:00:01.000000Z",
        "output": "{\"n\":1}",
    });
    assert_eq!(reply.json(), json!([record]));
    for query in ["status=done", "since=soon", "limit=0"] {
        assert_eq!(api.get(&format!("/invocations?{query}")).await.status, 400, "{query}");
    }
    assert_eq!(api.get("/invocations?deployment_id=x").await.json(), json!([]), "it names nothing");

    let events = frames(&api.get(&format!("/invocations/{}/events", id())).await);
    let log = json!({ "event": "log", "timestamp": "2026-12-01T12:00:00.000000Z", "message": "hello" });
    assert_eq!((events.len(), &events[0]["invocation"], &events[1]), (2, &record, &log));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_browsers_of_an_invocation_are_its_active_sessions() {
    let mut ports = Ports::default();
    ports.invocations.expect_find().returning(|_, _| Ok(Some(invocation(1))));
    ports.sessions.expect_of_invocation().returning(|_| Ok(vec![session(1)]));
    let reply = TestApi::start(ports).get(&format!("/invocations/{}/browsers", id())).await;
    let body = reply.json();
    let browsers = body["browsers"].as_array().unwrap_or_else(|| panic!("no list: {reply}"));
    assert_eq!(browsers[0]["session_id"].as_str(), Some(session(1).id.to_string().as_str()));
}
