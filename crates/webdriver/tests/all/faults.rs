//! What the engine does when a server makes mistakes.

use std::collections::HashSet;
use std::time::Duration;

use casement_webdriver::{Channel, Credentials, GridError, RemoteSession, WebDriverEngine};
use http::Method;
use pretty_assertions::assert_eq;
use serde_json::{Map, json};
use tokio::time::{sleep, timeout};

use crate::fake::{Fake, Mistake};
use crate::support::{OWNER, browser, config, engine, eventually, shape, start_error, started};

const SOON: Duration = Duration::from_secs(10);

async fn fake() -> (Fake, WebDriverEngine) {
    let fake = Fake::start().await;
    let engine = engine(config(&fake.url()));
    (fake, engine)
}

async fn is_empty(fake: &Fake, engine: &WebDriverEngine) {
    eventually("the end of the session", SOON, async || fake.sessions().is_empty()).await;
    assert_eq!(engine.used(), 0);
}

#[tokio::test]
async fn a_session_is_started_marked_and_ended() {
    let (fake, engine) = fake().await;
    let session = started(&engine, 1).await;
    assert_eq!((session.id(), session.browser_version()), ("session1", "156.0"));
    assert_eq!(session.capabilities()["casement:owner"], OWNER);
    assert_eq!(session.capabilities()["casement:browser"], browser(1).to_string());
    assert_eq!(engine.is_active(&session).await, Ok(true));
    assert_eq!(engine.used(), 1);
    engine.end(&session).await.expect("ended");
    engine.end(&session).await.expect("ended already");
    assert_eq!(engine.is_active(&session).await, Ok(false));
    is_empty(&fake, &engine).await;
}

#[tokio::test]
async fn a_session_whose_answer_was_lost_is_found_by_its_mark_and_ended() {
    let (fake, engine) = fake().await;
    fake.add("stranger", json!({ "browserName": "chrome" }));
    fake.once(Method::POST, "/session", Mistake::LoseAnswer);
    assert!(matches!(start_error(&engine, 1).await, GridError::Away { .. }));
    eventually("the end of the session", SOON, async || fake.sessions() == ["stranger"]).await;
}

#[tokio::test]
async fn a_session_without_a_waiting_start_is_ended() {
    let (fake, engine) = fake().await;
    fake.once(Method::POST, "/session", Mistake::Slow(Duration::from_secs(20)));
    let shape = shape();
    let requested = Map::new();
    let start = engine.start(browser(1), &shape, &requested);
    timeout(Duration::from_millis(300), start).await.expect_err("it is still waiting");
    assert_eq!(fake.sessions().len(), 1);
    is_empty(&fake, &engine).await;
}

#[tokio::test]
async fn a_browser_that_is_started_again_keeps_its_second_session() {
    let (fake, engine) = fake().await;
    fake.once(Method::POST, "/session", Mistake::LoseAnswer);
    start_error(&engine, 1).await;
    let second = started(&engine, 1).await;
    eventually("the end of the first one", SOON, async || fake.sessions() == [second.id()]).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(fake.sessions(), [second.id()]);
}

#[tokio::test]
async fn nonsense_instead_of_a_session_is_a_typed_error() {
    let (fake, engine) = fake().await;
    for answer in ["", "<html>", "[]", "{}", r#"{"value":1}"#, r#"{"value":{"sessionId":"../x","capabilities":{}}}"#] {
        fake.once(Method::POST, "/session", Mistake::Instead(200, answer.to_owned()));
        let error = start_error(&engine, 1).await;
        assert!(matches!(error, GridError::Nonsense { .. }), "{answer}: {error}");
    }
    is_empty(&fake, &engine).await;
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused() {
    let (fake, engine) = fake().await;
    fake.once(Method::POST, "/session", Mistake::Answer(200, " ".repeat(2 << 20)));
    assert!(matches!(start_error(&engine, 1).await, GridError::Nonsense { .. }));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (fake, engine) = fake().await;
    fake.once(Method::POST, "/session", Mistake::Answer(302, String::new()));
    let error = start_error(&engine, 1).await;
    assert_eq!(error, GridError::Redirect { status: 302 });
    assert!(error.to_string().contains("configure the final URL"), "{error}");
    let received = fake.received();
    assert_eq!(received.iter().map(|received| received.path.as_str()).collect::<Vec<_>>(), ["/status", "/session"]);
}

#[tokio::test]
async fn a_server_without_room_says_its_own_reason() {
    let (fake, engine) = fake().await;
    fake.add("stranger", json!({}));
    let message = "Could not start a new session. New session request timed out \nBuild info: x";
    fake.once(Method::POST, "/session", Mistake::error(500, "session not created", message));
    let reason = "Could not start a new session. New session request timed out (all 1 slots for Chrome are in use)";
    assert_eq!(start_error(&engine, 1).await, GridError::Busy { reason: reason.to_owned() });
    assert_eq!(fake.sessions(), ["stranger"]);
}

#[tokio::test]
async fn a_browser_that_does_not_start_is_refused_with_the_servers_message() {
    let (fake, engine) = fake().await;
    let message = format!("Chrome failed to start {}", "x".repeat(1000));
    fake.once(Method::POST, "/session", Mistake::error(500, "session not created", &message));
    let GridError::Refused { code, message } = start_error(&engine, 1).await else { panic!("refused") };
    assert_eq!(code, "session not created");
    assert_eq!(message.len(), 500);
}

#[tokio::test]
async fn an_engine_at_its_limit_asks_nothing_of_the_server() {
    let fake = Fake::start().await;
    let mut config = config(&fake.url());
    config.max_sessions = Some(1);
    let engine = engine(config);
    let session = started(&engine, 1).await;
    let requests = fake.received().len();
    assert_eq!(start_error(&engine, 2).await, GridError::Full { max: 1 });
    assert_eq!(fake.received().len(), requests);
    engine.end(&session).await.expect("ended");
    started(&engine, 2).await;
}

#[tokio::test]
async fn a_start_has_its_place_only_as_long_as_it_lasts() {
    let fake = Fake::start().await;
    let mut config = config(&fake.url());
    config.max_sessions = Some(1);
    let engine = engine(config);
    fake.once(Method::POST, "/session", Mistake::error(500, "session not created", "Chrome failed to start"));
    start_error(&engine, 1).await;
    started(&engine, 1).await;
}

#[tokio::test]
async fn an_end_whose_answer_was_lost_is_repeated() {
    let (fake, engine) = fake().await;
    let session = started(&engine, 1).await;
    fake.once(Method::DELETE, "/session", Mistake::LoseAnswer);
    fake.once(Method::DELETE, "/session", Mistake::Answer(502, "bad gateway".to_owned()));
    engine.end(&session).await.expect("ended");
    is_empty(&fake, &engine).await;
    assert_eq!(fake.received().iter().filter(|received| received.method == Method::DELETE).count(), 3);
}

#[tokio::test]
async fn a_slow_server_is_not_waited_for_longer_than_the_timeout() {
    let fake = Fake::start().await;
    let mut config = config(&fake.url());
    config.command_timeout = Duration::from_secs(1);
    let engine = engine(config);
    fake.once(Method::GET, "/status", Mistake::Slow(Duration::from_secs(30)));
    // The server does answer, after thirty times as long.
    assert_eq!(engine.status().await, Err(GridError::Timeout { seconds: 1 }));
}

#[tokio::test]
async fn a_server_that_is_away_is_unreachable() {
    let (fake, engine) = fake().await;
    fake.stop().await;
    assert!(matches!(start_error(&engine, 1).await, GridError::Unreachable { .. }));
    fake.restart().await;
    started(&engine, 1).await;
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    let fake = Fake::start().await;
    let mut config = config(&fake.url());
    config.credentials = Some(Credentials::new("me".to_owned(), "geheim"));
    let engine = engine(config);
    let session = started(&engine, 1).await;
    let received = fake.received();
    assert_eq!(received[0].authorization.as_deref(), Some("Basic bWU6Z2VoZWlt"));
    let message = "no access for me:geheim with bWU6Z2VoZWlt";
    fake.once(Method::GET, "/session", Mistake::error(500, "unknown error", message));
    let error = engine.is_active(&session).await.expect_err("an error");
    fake.once(Method::GET, "/status", Mistake::Answer(401, "geheim".to_owned()));
    let refused = engine.status().await.expect_err("an error");
    assert_eq!(refused, GridError::Unauthorized { status: 401 });
    let shown = format!("{error} {error:?} {refused} {engine:?} {:?} {}", engine.config(), session.to_record());
    assert!(!shown.contains("geheim") && !shown.contains("bWU6Z2VoZWlt"), "{shown}");
}

#[tokio::test]
async fn a_sweep_ends_unknown_sessions_of_this_installation_only() {
    let (fake, engine) = fake().await;
    let tracked = started(&engine, 1).await;
    let marks =
        |owner: &str, number| json!({ "casement:owner": owner, "casement:browser": browser(number).to_string() });
    fake.add("known", marks(OWNER, 2));
    fake.add("unknown", marks(OWNER, 3));
    fake.add("nonsense", json!({ "casement:owner": OWNER, "casement:browser": "x" }));
    fake.add("second", marks(OWNER, 1));
    fake.add("other", marks("other", 3));
    fake.add("stranger", json!({}));
    let swept = engine.sweep(&HashSet::from([browser(2)])).await.expect("swept");
    assert_eq!(fake.sessions(), ["known", "other", tracked.id(), "stranger"]);
    assert_eq!((swept.ended, swept.failed.len()), (3, 0));
    assert_eq!(swept.found[&browser(2)][0].id(), "known");
    assert_eq!(swept.found[&browser(1)], [tracked]);
}

#[tokio::test]
async fn a_sweep_that_cannot_list_sessions_ends_none() {
    let (fake, engine) = fake().await;
    fake.add("unknown", json!({ "casement:owner": OWNER, "casement:browser": browser(3).to_string() }));
    fake.once(Method::GET, "/status", Mistake::Answer(200, r#"{"value":{"ready":true}}"#.to_owned()));
    let error = engine.sweep(&HashSet::new()).await.expect_err("no list");
    assert!(matches!(error, GridError::Unsupported { .. }), "{error}");
    assert_eq!(fake.sessions(), ["unknown"]);
}

/// A server on a loopback address may be the end of a tunnel.
#[tokio::test]
async fn a_named_port_gets_a_request_only_if_the_marked_browser_listens_there() {
    let (fake, engine) = fake().await;
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    other.set_nonblocking(true).expect("set");
    let port = other.local_addr().expect("bound").port();
    let capabilities = json!({
        "browserVersion": "156.0", "goog:chromeOptions": { "debuggerAddress": format!("127.0.0.1:{port}") },
    });
    let answer = json!({ "value": { "sessionId": "session1", "capabilities": capabilities } });
    fake.once(Method::POST, "/session", Mistake::Instead(200, answer.to_string()));
    let session = started(&engine, 1).await;
    let (_, endpoint) = engine.connect(&session, Channel::Cdp).await.expect("the server's own path");
    assert_eq!((endpoint.host, endpoint.path), (fake.address.to_string(), "/session/session1/se/cdp".to_owned()));
    let record = json!({
        "version": 1, "id": "session1", "browser": browser(1).to_string(), "browser_version": "156.0",
        "cdp": { "debugger": { "port": port, "path": "/devtools/browser/x" } }, "bidi": null, "capabilities": {},
    });
    let recorded = RemoteSession::parse_record(&record.to_string()).expect("a record");
    let refused = engine.connect(&recorded, Channel::Cdp).await.expect_err("another program has the port");
    assert!(matches!(refused, GridError::Unreachable { .. }), "{refused}");
    assert_eq!(other.accept().expect_err("nobody").kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_session_with_very_many_capabilities_is_recorded_without_most_of_them() {
    let (fake, engine) = fake().await;
    let mut capabilities: Map<String, serde_json::Value> =
        (0..20_000).map(|at| (format!("x:{at}"), json!(at))).collect();
    capabilities.insert("browserVersion".to_owned(), json!("156.0"));
    let answer = json!({ "value": { "sessionId": "session1", "capabilities": capabilities } });
    fake.once(Method::POST, "/session", Mistake::Instead(200, answer.to_string()));
    let session = started(&engine, 1).await;
    assert!(session.to_record().len() <= RemoteSession::MAX_RECORD);
    assert_eq!(session.browser_version(), "156.0");
}
