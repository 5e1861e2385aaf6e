//! Restarts of Chromium in a running session, and extensions.

use std::time::{Duration, Instant};

use bytes::Bytes;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::extension::{ADD, ExtensionName, RestartRequest};
use casement_agent_protocol::{ErrorCode, Event, ExitReason, State, Viewport};
use casement_test_support::archives::zip;
use serde_json::{Value, json};

use crate::cdp::Cdp;
use crate::headless::{LARGE, decode, refusal};
use crate::sandbox::{NONCE, SLOWLY, Sandbox, TEST_TIMEOUT, config, end, news, signal};

/// Creates an extension that marks every page with the answer of its service worker.
fn extension(mark: &str) -> Vec<u8> {
    let manifest = json!({
        "manifest_version": 3, "name": mark, "version": "1.0", "background": { "service_worker": "worker.js" },
        "content_scripts": [{ "matches": ["http://*/*"], "js": ["content.js"] }],
    });
    // The service worker may not listen yet when the page is loaded.
    let content = format!(
        "const ask = () => chrome.runtime.sendMessage('{mark}', answer => {{\
             if (chrome.runtime.lastError) setTimeout(ask, 100);\
             else document.documentElement.dataset.{mark} = answer; }}); ask();"
    );
    let worker = "chrome.runtime.onMessage.addListener((word, _, answer) => answer('worker of ' + word));";
    zip(&[("manifest.json", &manifest.to_string()), ("content.js", &content), ("worker.js", worker)]).unwrap()
}

async fn add(client: &AgentClient, name: &str, archive: Vec<u8>) -> Result<(), ClientError> {
    let content = futures_util::stream::iter(
        archive.chunks(1000).map(|part| Ok(Bytes::copy_from_slice(part))).collect::<Vec<_>>(),
    );
    let name = ExtensionName { name: name.to_owned() };
    client.upload::<Value>(ADD, &name, content, Duration::from_secs(60)).await.map(drop)
}

fn named(names: &[&str]) -> RestartRequest {
    RestartRequest { extensions: names.iter().map(|name| (*name).to_owned()).collect(), ..RestartRequest::default() }
}

/// Opens a new page and waits until it has the mark of the extension `mark`.
async fn shows(cdp: &mut Cdp, mark: &str) {
    let page = cdp.page("http://page.test/", false).await;
    let shown = format!("document.documentElement?.dataset.{mark}");
    cdp.until(&page, &shown, &json!(format!("worker of {mark}"))).await;
}

#[tokio::test]
async fn an_extension_is_loaded_into_a_living_session_and_its_pages_come_back() {
    for (headless, stealth) in [(true, false), (true, true), (false, false)] {
        let mut config = config(headless);
        config.stealth = stealth;
        let (sandbox, first, client) = Sandbox::with_browser(&config, "before the restart").await;
        let mut events = client.events().await.unwrap();
        let mut cdp = Cdp::dial(&sandbox, &first).await;
        let page = cdp.page("http://page.test/", false).await;
        cdp.until(&page, "document.readyState + document.title", &json!("completecoloured")).await;
        let buffered = "document.cookie = 'ends=with the browser'; document.cookie = 'stays=1; max-age=999';\
                    localStorage.kept = 'here'";
        cdp.evaluate(&page, buffered).await;

        add(&client, "red", extension("red")).await.unwrap();
        let began = Instant::now();
        let second = client.restart(&named(&["red"])).await.unwrap();
        println!("headless {headless}, stealth {stealth}: started anew in {:?}", began.elapsed());
        assert_eq!((&second.state, second.nonce.as_str()), (&State::Ready, NONCE));
        assert_ne!(second.browser_ws_path, first.browser_ws_path);
        let mut cdp = Cdp::dial(&sandbox, &second).await;
        shows(&mut cdp, "red").await;
        let restored = restored(&mut cdp, "http://page.test/").await;
        // The URL of a page is known before its document is loaded, and a blank document has no storage.
        let cookies = "(() => { try { return document.cookie.split('; ').sort().join() + localStorage.kept + innerWidth }\
                       catch { return '' } })()";
        let width = config.viewport.width;
        cdp.until(&restored, cookies, &json!(format!("ends=with the browser,stays=1here{width}"))).await;

        add(&client, "blue", extension("blue")).await.unwrap();
        let third = client.restart(&named(&["blue"])).await.unwrap();
        let mut cdp = Cdp::dial(&sandbox, &third).await;
        shows(&mut cdp, "blue").await;
        shows(&mut cdp, "red").await;
        assert_eq!(decode(&client.screenshot(None, LARGE).await.unwrap()).size, (900, 700));
        client.handout(None, None, SLOWLY).await.unwrap();

        // The events report no end of the browser, and that it is ready again after each restart.
        assert!(matches!(news(&mut events).await, Some(Event::Hello { .. })));
        assert_eq!(news(&mut events).await, Some(Event::Ready));
        assert_eq!(news(&mut events).await, Some(Event::Ready));
        client.shutdown().await.unwrap();
        let last = loop {
            match events.next().await.unwrap() {
                Some(Event::Exited { reason, .. }) => break reason,
                Some(Event::Heartbeat | Event::Ready) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(last, ExitReason::Shutdown);
    }
}

/// Attaches to the page of this address, once it is open, and returns the session.
async fn restored(cdp: &mut Cdp, address: &str) -> String {
    let deadline = Instant::now() + TEST_TIMEOUT;
    let target = loop {
        let answer = cdp.call(None, "Target.getTargets", json!({})).await;
        let infos = answer["targetInfos"].as_array().unwrap();
        if let Some(found) = infos.iter().find(|info| info["type"] == "page" && info["url"] == address) {
            break found["targetId"].as_str().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline, "{infos:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    cdp.attach(&target).await
}

#[tokio::test]
async fn extensions_that_cannot_be_loaded_are_refused_and_the_session_goes_on() {
    let (sandbox, first, client) = Sandbox::with_browser(&config(false), "refusals").await;
    assert_eq!(refusal(client.restart(&named(&["never-added"])).await), ErrorCode::Missing);
    for (name, archive, code) in [
        ("text", b"no archive".to_vec(), ErrorCode::NotAllowed),
        ("empty", zip(&[]).unwrap(), ErrorCode::NotAllowed),
        ("out", zip(&[("manifest.json", "{}"), ("../out", "")]).unwrap(), ErrorCode::NotAllowed),
        ("a/b", extension("a"), ErrorCode::BadRequest),
        ("large", vec![0; (50 << 20) + 1], ErrorCode::TooLarge),
    ] {
        assert_eq!(refusal(add(&client, name, archive).await), code, "{name}");
    }
    let too_large = RestartRequest {
        viewport: Some(Viewport { width: 0, height: 5, refresh_rate: 1 }),
        ..RestartRequest::default()
    };
    assert_eq!(refusal(client.restart(&too_large).await), ErrorCode::OutOfRange);
    assert_eq!(client.status().await.unwrap().browser_ws_path, first.browser_ws_path, "nothing was touched");

    // Chromium refuses some extensions only at its start; the other extensions are loaded nevertheless.
    let manifest =
        r#"{"manifest_version":3,"name":"bad","version":"one","content_scripts":[{"matches":["nonsense"]}]}"#;
    add(&client, "bad", zip(&[("manifest.json", manifest)]).unwrap()).await.unwrap();
    add(&client, "good", extension("good")).await.unwrap();
    let refused = client.restart(&named(&["bad", "good"])).await;
    assert!(matches!(&refused, Err(ClientError::Refused(body)) if body.message.contains("bad")), "{refused:?}");
    assert_eq!(refusal(refused), ErrorCode::NotAllowed);
    let status = client.status().await.unwrap();
    assert_eq!(status.state, State::Ready, "{status:?}");
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    shows(&mut cdp, "good").await;
}

#[tokio::test]
async fn a_start_that_is_held_back_waits_for_its_extensions() {
    let mut config = config(true);
    config.held = true;
    let sandbox = Sandbox::start(&config);
    let client = sandbox.client().await;
    add(&client, "red", extension("red")).await.unwrap();
    assert_eq!(client.status().await.unwrap().state, State::Starting);
    assert!(sandbox.processes("--user-data-dir").is_empty());
    let status = client.restart(&named(&["red"])).await.unwrap();
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    shows(&mut cdp, "red").await;
    assert_eq!(cdp.pages().await.len(), 2);

    let mut sandbox = Sandbox::start(&config);
    let client = sandbox.client().await;
    let manifest = r#"{"manifest_version":3,"name":"bad","version":"one"}"#;
    add(&client, "bad", zip(&[("manifest.json", manifest)]).unwrap()).await.unwrap();
    assert_eq!(refusal(client.restart(&named(&["bad"])).await), ErrorCode::NotAllowed);
    // The failure is reported after the response.
    assert!(matches!(client.ready().await.unwrap().state, State::Failed { .. }));
    assert_eq!(sandbox.ended().await, Some(1));
}

#[tokio::test]
async fn a_viewport_larger_than_the_display_can_become_restarts_it() {
    let (sandbox, status, client) = Sandbox::with_browser(&config(false), "a small display").await;
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let page = cdp.page("http://page.test/", false).await;
    cdp.until(&page, "document.readyState + document.title", &json!("completecoloured")).await;
    let larger = Viewport { width: 4200, height: 2700, refresh_rate: 10 };
    assert_eq!(refusal(client.viewport(larger).await), ErrorCode::OutOfRange);
    let status = client.restart(&RestartRequest { viewport: Some(larger), ..RestartRequest::default() }).await.unwrap();
    assert_eq!(status.viewport, larger);
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let page = restored(&mut cdp, "http://page.test/").await;
    cdp.until(&page, "[outerWidth, outerHeight, screen.width].join()", &json!("4200,2700,4200")).await;
    assert_eq!(decode(&client.screenshot(None, LARGE).await.unwrap()).size, (4200, 2700));
    assert_eq!(sandbox.processes("Xvfb").len(), 1);
    // From now on the display has room for the larger viewport.
    let smaller = Viewport { width: 640, height: 480, refresh_rate: 60 };
    client.viewport(smaller).await.unwrap();
    client.viewport(larger).await.unwrap();
}

#[tokio::test]
async fn a_browser_that_does_not_come_up_again_ends_the_session_with_the_reason() {
    let (mut sandbox, _, client) = Sandbox::with_browser(&config(true), "before a failed restart").await;
    let mut events = client.events().await.unwrap();
    let requested = tokio::spawn({
        let client = sandbox.client().await;
        async move { client.restart(&RestartRequest::default()).await }
    });
    // The new browser is killed as soon as it exists.
    let old = sandbox.browser();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let all = sandbox.browsers();
        // The child processes of the browser look like the browser for a moment.
        if let Some(new) = all.into_iter().filter(|pid| *pid != old).min() {
            signal(new, "KILL");
            break;
        }
        assert!(Instant::now() < deadline, "no new browser");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let answer = requested.await.unwrap();
    let ended = end(&mut events).await;
    assert_eq!(ended.0, ExitReason::Crashed, "{}", ended.1);
    println!("{answer:?}; {}", ended.1);
    assert_eq!(sandbox.ended().await, Some(1));
}
