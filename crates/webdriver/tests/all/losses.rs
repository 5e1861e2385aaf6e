//! Which sessions are lost, and when that is noticed.

use std::time::Duration;

use http::Method;
use pretty_assertions::assert_eq;
use tokio::time::{Instant, sleep};

use crate::fake::{Fake, Mistake};
use crate::support::{TEST_TIMEOUT, Watch, browser, config, engine, started};

const NODE_AWAY: &str = "Unable to execute request for an existing session: Connection error (GET http://10.0.0.7/)";

#[tokio::test]
async fn a_session_that_the_server_does_not_have_is_lost_once() {
    let fake = Fake::start().await;
    let engine = engine(config(&fake.url()));
    started(&engine, 1).await;
    let mut watch = Watch::of(&engine);
    fake.forget_all();
    engine.suspect(browser(1));
    let lost = watch.next(TEST_TIMEOUT).await.expect("lost");
    assert_eq!(lost.browser, browser(1));
    assert!(lost.reason.ends_with("does not have the session any more: Cannot find session"), "{}", lost.reason);
    assert_eq!(watch.next(Duration::from_secs(1)).await, None);
    assert_eq!(engine.used(), 0);
}

#[tokio::test]
async fn a_loss_is_noticed_without_a_suspicion() {
    let fake = Fake::start().await;
    let engine = engine(config(&fake.url()));
    let mut watch = Watch::of(&engine);
    started(&engine, 1).await;
    sleep(Duration::from_millis(500)).await;
    fake.forget_all();
    assert!(watch.next(TEST_TIMEOUT).await.is_some());
}

#[tokio::test]
async fn sessions_get_signs_of_life_in_a_third_of_the_idle_timeout() {
    let fake = Fake::start().await;
    let mut config = config(&fake.url());
    config.session_timeout = Duration::from_secs(10);
    let engine = engine(config);
    let _watch = Watch::of(&engine);
    let session = started(&engine, 1).await;
    sleep(Duration::from_secs(8)).await;
    let path = format!("/session/{}/timeouts", session.id());
    let signs = fake.received().iter().filter(|received| received.path == path).count();
    assert!((2..=4).contains(&signs), "{signs}");
}

#[tokio::test]
async fn a_server_that_is_away_loses_no_session_until_it_says_so() {
    let fake = Fake::start().await;
    let engine = engine(config(&fake.url()));
    started(&engine, 1).await;
    let mut watch = Watch::of(&engine);
    fake.stop().await;
    engine.suspect(browser(1));
    assert_eq!(watch.next(Duration::from_secs(4)).await, None);
    fake.restart().await;
    for answer in [(502, "bad gateway"), (404, "<html>not found</html>"), (200, "hello"), (503, r#"{"value":null}"#)] {
        fake.once(Method::GET, "/session/", Mistake::Answer(answer.0, answer.1.to_owned()));
        engine.suspect(browser(1));
        assert_eq!(watch.next(Duration::from_secs(1)).await, None, "{answer:?}");
    }
    fake.forget_all();
    assert!(watch.next(TEST_TIMEOUT).await.is_some());
}

#[tokio::test]
async fn a_session_is_lost_when_its_node_is_not_reached_for_a_while() {
    let fake = Fake::start().await;
    let engine = engine(config(&fake.url()));
    let session = started(&engine, 1).await;
    let mut watch = Watch::of(&engine);
    fake.always("/session/", Mistake::error(500, "unknown error", NODE_AWAY));
    engine.suspect(browser(1));
    assert_eq!(watch.next(Duration::from_secs(4)).await, None, "it may be a moment only");
    fake.behave();
    assert_eq!(watch.next(Duration::from_secs(4)).await, None);
    fake.always("/session/", Mistake::error(500, "unknown error", NODE_AWAY));
    engine.suspect(browser(1));
    let begun = Instant::now();
    let lost = watch.next(TEST_TIMEOUT).await.expect("lost");
    assert!(begun.elapsed() > Duration::from_secs(9), "{:?}", begun.elapsed());
    assert!(lost.reason.ends_with(NODE_AWAY), "{}", lost.reason);
    engine.end(&session).await.expect("ended");
}

#[tokio::test]
async fn a_session_that_is_ended_is_not_lost() {
    let fake = Fake::start().await;
    let engine = engine(config(&fake.url()));
    let session = started(&engine, 1).await;
    let mut watch = Watch::of(&engine);
    engine.end(&session).await.expect("ended");
    engine.suspect(browser(1));
    assert_eq!(watch.next(Duration::from_secs(1)).await, None);
}

#[tokio::test]
async fn a_tracked_session_of_an_earlier_run_is_watched() {
    let fake = Fake::start().await;
    let session = started(&engine(config(&fake.url())), 1).await;
    let record = session.to_record();
    let later = engine(config(&fake.url()));
    let mut watch = Watch::of(&later);
    later.track(casement_webdriver::RemoteSession::parse_record(&record).expect("a record"));
    assert_eq!(watch.next(Duration::from_secs(1)).await, None);
    assert_eq!(later.used(), 1);
    fake.forget_all();
    later.suspect(browser(1));
    assert!(watch.next(TEST_TIMEOUT).await.is_some());
}
