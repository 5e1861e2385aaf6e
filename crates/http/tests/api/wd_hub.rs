//! `/wd/hub`: WebDriver clients make their sessions themselves.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use casement_domain::{
    browser::Started,
    fs::{Entry, FileContent},
    session::{Created, EndReason, SessionState},
    store_error::Replaced,
    testing::{NOON, session, session_id},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{
    acquire::until,
    support::{Key, Ports, Reply, TestApi, Trail},
    webdriver::Driver,
};

fn key() -> String {
    Key::Organization.text()
}

/// Returns the ports of a server that can start one session, and whether that was deleted.
async fn startable() -> (Ports, Arc<AtomicBool>) {
    let mut ports = Ports { session_connector: Some(Arc::new(Driver::start().await)), ..Ports::default() };
    ports.spares.expect_take().returning(|_| None);
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    ports.engine.expect_start().returning(|_| Ok(Started::default()));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    let deleted = Arc::new(AtomicBool::new(false));
    let ending = deleted.clone();
    ports.sessions.expect_end().returning(move |_, next| {
        ending.store(next.state == SessionState::Ended(EndReason::Deleted), Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    (ports, deleted)
}

async fn create(api: &TestApi, capabilities: Value) -> Reply {
    api.post("/wd/hub/session", json!({ "capabilities": { "alwaysMatch": capabilities } })).await
}

fn w3c_error(reply: &Reply) -> String {
    reply.json()["value"]["error"].as_str().unwrap_or_else(|| panic!("no error: {reply}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webdriver_session_makes_a_session_and_ends_it() {
    let (ports, deleted) = startable().await;
    let api = TestApi::start(ports);
    let made = create(&api, json!({ "browserName": "chrome", "se:downloadsEnabled": true })).await;
    assert_eq!(made.status, 200, "{made}");
    let value = &made.json()["value"];
    let id = value["sessionId"].as_str().unwrap();
    let (session, own) = id.split_once('-').unwrap();
    assert_eq!(own, "abc", "chromedriver's own id");
    let capabilities = &value["capabilities"];
    assert_eq!(
        (&capabilities["casement:sessionId"], &capabilities["se:downloadsEnabled"]),
        (&json!(session), &json!(true))
    );
    let cdp = capabilities["se:cdp"].as_str().unwrap();
    assert!(cdp.starts_with(&format!("wss://casement.test/vm/{session}/cdp?jwt=")), "{cdp}");

    assert_eq!(api.get(&format!("/wd/hub/session/{id}/url")).await.status, 200);
    assert!(!deleted.load(Ordering::SeqCst));
    for other in [session, "mine", "my-name"] {
        let refused = api.call("DELETE", &format!("/wd/hub/session/{other}"), "").await;
        assert_eq!((refused.status, w3c_error(&refused)), (404, "invalid session id".to_owned()), "{other}");
    }
    assert!(!deleted.load(Ordering::SeqCst), "only the id of a WebDriver session ends a session");
    let ended = api.call("DELETE", &format!("/wd/hub/session/{id}"), "").await;
    assert_eq!((ended.status, ended.json()), (200, json!({ "value": null })));
    assert!(deleted.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_accepted_in_the_path_and_recorded_nowhere() {
    let (mut ports, _) = startable().await;
    let trail = Trail::default();
    ports.trail = trail.clone();
    let api = TestApi::start(ports);
    let path = format!("/wd/hub/{}/session", key());
    let made = api.request("POST", &path, &[], r#"{"capabilities":{}}"#).await;
    assert_eq!(made.status, 200, "{made}");
    let unknown = api.request("GET", "/wd/hub/csk_mistyped/session/a-b/url", &[], "").await;
    assert_eq!((unknown.status, w3c_error(&unknown)), (401, "unknown error".to_owned()));
    let entries = trail.entries().await;
    let text = format!("{entries:?}{:?}", trail.intents.lock());
    assert!(text.contains("/wd/hub/session") && !text.contains("csk_"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_form_of_the_protocol_and_make_no_session() {
    let api = TestApi::start(Ports::default());
    for (capabilities, status, error, name) in [
        (json!({ "browserName": "firefox" }), 400, "session not created", "browserName"),
        (json!({ "goog:chromeOptions": { "binary": "/x" } }), 400, "session not created", "binary"),
        (json!({ "casement:options": { "pool": "x", "headless": true } }), 400, "invalid argument", "headless"),
    ] {
        let refused = create(&api, capabilities).await;
        assert_eq!((refused.status, w3c_error(&refused)), (status, error.to_owned()), "{refused}");
        assert!(refused.json()["value"]["message"].as_str().unwrap().contains(name), "{refused}");
    }
    let nothing = api.post("/wd/hub/session", json!({ "capabilities": { "firstMatch": [null] } })).await;
    assert_eq!((nothing.status, w3c_error(&nothing)), (400, "invalid argument".to_owned()), "{nothing}");
    let without = api.request("POST", "/wd/hub/session", &[], "{}").await;
    assert_eq!((without.status, w3c_error(&without)), (401, "session not created".to_owned()));
    let other = api.call("PUT", "/wd/hub/session", "").await;
    assert_eq!(other.status, 405);
    let status = api.request("GET", "/wd/hub/status", &[], "").await;
    assert_eq!((status.status, &status.json()["value"]["ready"]), (200, &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_chromedriver_refuses_ends() {
    let (mut ports, _) = startable().await;
    ports.session_connector = Some(Arc::new(Driver::refusing().await));
    let ended = Arc::new(AtomicBool::new(false));
    ports.sessions.checkpoint();
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let ending = ended.clone();
    ports.sessions.expect_end().returning(move |_, _| {
        ending.store(true, Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    let api = TestApi::start(ports);
    let refused = create(&api, json!({ "platformName": "windows" })).await;
    assert_eq!((refused.status, w3c_error(&refused)), (500, "session not created".to_owned()));
    until("ended", || ended.load(Ordering::SeqCst)).await;
}

fn entry(name: &str, mode: u32) -> Entry {
    Entry { name: name.to_owned(), mode, size_bytes: 5, modified_at: NOON }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_uploaded_for_inputs_and_downloads_are_read() {
    let (mut ports, _) = startable().await;
    ports.files.expect_make_directory().returning(|_, _| Ok(()));
    ports.files.expect_unpack().times(1).returning(|_, path, archive| {
        assert!(path.as_str().starts_with("/home/casement/uploads/"), "{path}");
        let archive = futures_util::FutureExt::now_or_never(archive.try_collect::<Vec<Bytes>>()).unwrap().unwrap();
        assert_eq!(archive.concat(), b"PK the archive");
        Ok(())
    });
    ports.files.expect_list().returning(|_, path| {
        let found = match path.as_str() {
            "/home/casement/downloads" => {
                vec![entry("a.txt", 0o100_644), entry("b.crdownload", 0o100_644), entry("c", 0o040_755)]
            }
            _ => vec![entry("photo.png", 0o100_644)],
        };
        Ok(stream::iter([Ok(found)]).boxed())
    });
    ports.files.expect_read().returning(|_, path| {
        assert_eq!(path.as_str(), "/home/casement/downloads/a.txt");
        let bytes = stream::iter([Ok(Bytes::from_static(b"hello"))]).boxed();
        Ok(FileContent { length: Some(5), bytes })
    });
    ports.files.expect_delete_file().times(1).returning(|_, path| {
        assert_eq!(path.as_str(), "/home/casement/downloads/a.txt");
        Ok(())
    });
    let api = TestApi::start(ports);
    let base = format!("/wd/hub/session/{}-abc", session_id(1));
    // Some clients break the lines of the archive.
    let archive = format!("{}\n", STANDARD.encode("PK the archive"));
    let uploaded = api.post(&format!("{base}/se/file"), json!({ "file": archive })).await;
    let path = uploaded.json()["value"].as_str().unwrap_or_else(|| panic!("{uploaded}")).to_owned();
    assert!(path.starts_with("/home/casement/uploads/") && path.ends_with("/photo.png"), "{path}");

    let listed = api.get(&format!("{base}/se/files")).await.json();
    assert_eq!(listed["value"]["names"], json!(["a.txt"]));
    let read = api.post(&format!("{base}/se/files"), json!({ "name": "a.txt" })).await.json();
    assert_eq!(read["value"]["filename"], "a.txt");
    let archive = STANDARD.decode(read["value"]["contents"].as_str().unwrap()).unwrap();
    assert!(archive.starts_with(b"PK\x03\x04") && archive.windows(5).any(|five| five == b"hello"));
    let elsewhere = api.post(&format!("{base}/se/files"), json!({ "name": "../.bashrc" })).await;
    assert_eq!((elsewhere.status, w3c_error(&elsewhere)), (400, "invalid argument".to_owned()));
    assert_eq!(api.call("DELETE", &format!("{base}/se/files"), "").await.status, 200);
}
