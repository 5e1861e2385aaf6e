//! A plain chromedriver as the server.

use std::collections::HashSet;
use std::time::Duration;

use casement_webdriver::{CheckStage, GridError};
use pretty_assertions::assert_eq;
use serde_json::Map;
use tokio::time::sleep;

use crate::programs::Chromedriver;
use crate::support::{TEST_TIMEOUT, Watch, browser, config, engine, eventually, started};

#[tokio::test]
async fn a_chromedriver_passes_the_check() {
    let server = Chromedriver::start().await;
    let engine = engine(config(&server.url));
    let checked = engine.check(browser(1)).await.expect("it can be the engine");
    assert!(checked.status.ready && checked.status.nodes.is_none());
    assert!(checked.browser_version.contains('.'), "{}", checked.browser_version);
    assert!(!checked.has_downloads);
    assert_eq!(engine.used(), 0);
}

#[tokio::test]
async fn sessions_on_a_chromedriver_are_found_by_their_mark() {
    let server = Chromedriver::start().await;
    let mut others = config(&server.url);
    others.owner = "somebody".to_owned();
    let others = engine(others);
    let stranger = started(&others, 1).await;
    let earlier = engine(config(&server.url));
    let known = started(&earlier, 2).await;
    let unknown = started(&earlier, 3).await;
    let later = engine(config(&server.url));
    let swept = later.sweep(&HashSet::from([browser(2)])).await.expect("swept");
    assert_eq!((swept.ended, swept.failed.as_slice()), (1, [].as_slice()));
    assert_eq!(swept.found[&browser(2)][0].id(), known.id());
    assert_eq!(earlier.is_active(&known).await, Ok(true));
    assert_eq!(earlier.is_active(&unknown).await, Ok(false));
    assert_eq!(others.is_active(&stranger).await, Ok(true));
    for session in [known, unknown] {
        earlier.end(&session).await.expect("ended");
    }
    others.end(&stranger).await.expect("ended");
}

#[tokio::test]
async fn the_session_of_a_browser_that_ended_is_lost() {
    let server = Chromedriver::start().await;
    let engine = engine(config(&server.url));
    let session = started(&engine, 1).await;
    let mut watch = Watch::of(&engine);
    assert_eq!(watch.next(Duration::from_millis(500)).await, None);
    let process = session.capabilities()["goog:processID"].as_i64().expect("the browser's process");
    let process = rustix::process::Pid::from_raw(process.try_into().expect("a process")).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("killed");
    let lost = watch.next(TEST_TIMEOUT).await.expect("lost");
    assert_eq!(lost.browser, browser(1));
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_no_session_on_a_chromedriver() {
    let server = Chromedriver::start().await;
    let engine = engine(config(&server.url));
    let shape = crate::support::shape();
    tokio::time::timeout(Duration::from_millis(200), engine.start(browser(1), &shape, &Map::new()))
        .await
        .expect_err("not yet");
    // The browser is up after a while, and found after another one.
    sleep(Duration::from_secs(2)).await;
    eventually("the end of the session", Duration::from_secs(20), async || {
        let swept = crate::support::engine(config(&server.url)).sweep(&HashSet::from([browser(1)])).await;
        swept.is_ok_and(|swept| swept.found.is_empty())
    })
    .await;
}

#[tokio::test]
async fn a_failed_check_names_the_stage_and_what_to_do() {
    let server = Chromedriver::start().await;
    let mut config = config(&server.url);
    config.cdp_path = Some("/devtools/{id}".to_owned());
    let engine = engine(config);
    let failed = engine.check(browser(1)).await.expect_err("it has no CDP there");
    assert_eq!(failed.stage, CheckStage::Cdp);
    assert!(failed.remedy().contains("forward CDP"), "{}", failed.remedy());
    assert_eq!(engine.used(), 0);
    let nowhere = crate::support::engine(crate::support::config("http://127.0.0.1:1"));
    let failed = nowhere.check(browser(1)).await.expect_err("nothing is there");
    assert_eq!(failed.stage, CheckStage::Status);
    assert!(matches!(failed.source, GridError::Unreachable { .. }), "{failed}");
}
