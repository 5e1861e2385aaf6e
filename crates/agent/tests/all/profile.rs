//! Profiles: the next browser has the state of the previous one.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::profile::{CAPTURE, LOAD};
use casement_agent_protocol::{AgentConfig, ErrorCode, ExitReason, State, Status};
use futures_util::stream;
use serde_json::{Value, json};

use crate::cdp::Cdp;
use crate::headless::refusal;
use crate::sandbox::{SLOWLY, Sandbox, TEST_TIMEOUT, config, end, gone, signal, try_signal};

const LOGIN: &str = "http://localhost/login";

/// Stores something in each kind of storage that a page has.
const MAKE: &str = r"(async () => {
    document.cookie = 'stays=1; max-age=9999';
    localStorage.kept = 'stored';
    const open = indexedDB.open('kept', 1);
    open.onupgradeneeded = () => open.result.createObjectStore('store');
    await new Promise((done, failed) => { open.onsuccess = done; open.onerror = failed; });
    const transaction = open.result.transaction('store', 'readwrite');
    transaction.objectStore('store').put('indexed', 'key');
    await new Promise((done, failed) => { transaction.oncomplete = done; transaction.onerror = failed; });
    await (await caches.open('kept')).put('/cached', new Response('cached'));
    const file = await (await navigator.storage.getDirectory()).getFileHandle('kept', { create: true });
    const writable = await file.createWritable();
    await writable.write('filed');
    await writable.close();
    await navigator.serviceWorker.register('/kept.js');
    await navigator.serviceWorker.ready;
})()";

/// Reads all these kinds of storage, and the cookies that the server receives.
const LOOK: &str = r"(async () => {
    const databases = await indexedDB.databases();
    let indexed = null;
    if (databases.some(database => database.name === 'kept')) {
        const open = indexedDB.open('kept');
        await new Promise((done, failed) => { open.onsuccess = done; open.onerror = failed; });
        const get = open.result.transaction('store').objectStore('store').get('key');
        indexed = await new Promise((done, failed) => { get.onsuccess = () => done(get.result); get.onerror = failed; });
    }
    const cached = await caches.match('/cached');
    const file = await (await navigator.storage.getDirectory()).getFileHandle('kept').catch(() => null);
    const registered = await navigator.serviceWorker.getRegistration('/');
    return {
        sent: (await (await fetch('/cookies')).text()).split('; ').sort().join('; '),
        stored: localStorage.kept ?? null,
        indexed,
        cached: cached ? await cached.text() : null,
        filed: file ? await (await file.getFile()).text() : null,
        worker: registered ? await (await fetch('/from-worker')).text() : null,
        notifications: Notification.permission,
    };
})()";

fn whole() -> Value {
    json!({
        "sent": "ends=with the browser; stays=1", "stored": "stored", "indexed": "indexed", "cached": "cached",
        "filed": "filed", "worker": "the worker", "notifications": "granted",
    })
}

fn nothing() -> Value {
    json!({
        "sent": "", "stored": null, "indexed": null, "cached": null, "filed": null, "worker": null,
        "notifications": "default",
    })
}

fn held(headless: bool) -> AgentConfig {
    AgentConfig { held: true, ..config(headless) }
}

fn with_profile() -> RestartRequest {
    RestartRequest { profile: true, ..RestartRequest::default() }
}

/// Opens a page at `address` and waits until it is loaded.
async fn visit(cdp: &mut Cdp, address: &str) -> String {
    let page = cdp.page(address, false).await;
    cdp.until(&page, "document.readyState + location.href", &json!(format!("complete{address}"))).await;
    page
}

async fn log_in(sandbox: &Sandbox, status: &Status) {
    let mut cdp = Cdp::dial(sandbox, status).await;
    let page = visit(&mut cdp, LOGIN).await;
    cdp.evaluate(&page, MAKE).await;
    // Like a person does in the browser's settings.
    let settings = visit(&mut cdp, "chrome://settings/content").await;
    let grant = "chrome.send('setOriginPermissions', ['http://localhost', 'notifications', 'allow'])";
    cdp.evaluate(&settings, grant).await;
    cdp.until(&page, "Notification.permission", &json!("granted")).await;
}

async fn seen(sandbox: &Sandbox, status: &Status) -> Value {
    let mut cdp = Cdp::dial(sandbox, status).await;
    let page = visit(&mut cdp, "http://localhost/kept").await;
    cdp.evaluate(&page, LOOK).await
}

async fn capture(client: &AgentClient) -> Vec<u8> {
    let archive = client.download(CAPTURE, &(), TEST_TIMEOUT).await.unwrap();
    archive.collect(usize::MAX).await.unwrap().into()
}

async fn load(client: &AgentClient, archive: &[u8]) -> Result<(), ClientError> {
    let pieces: Vec<_> = archive.chunks(100_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    client.upload::<Value>(LOAD, &(), stream::iter(pieces), Duration::from_secs(60)).await.map(drop)
}

#[tokio::test]
async fn what_one_browser_knew_the_next_knows_with_a_display_and_without() {
    for headless in [true, false] {
        let first = Sandbox::start(&config(headless));
        let status = first.ready("before a login").await;
        let mut events = first.client().await.events().await.unwrap();
        log_in(&first, &status).await;
        let client = first.client().await;
        let began = Instant::now();
        let archive = capture(&client).await;
        println!("headless {headless}: {} bytes, closed and packed in {:?}", archive.len(), began.elapsed());
        assert_eq!(client.status().await.unwrap().state, State::Closed);
        gone(&first, "--user-data-dir").await;
        assert_eq!(capture(&client).await, archive, "the same again");
        assert_eq!(refusal(client.restart(&RestartRequest::default()).await), ErrorCode::NotReady);

        for headless in [true, false] {
            let next = Sandbox::start(&held(headless));
            let client = next.client().await;
            let began = Instant::now();
            load(&client, &archive).await.unwrap();
            let loaded = began.elapsed();
            let status = client.restart(&with_profile()).await.unwrap();
            println!("then headless {headless}: loaded after {loaded:?}, started after {:?}", began.elapsed());
            assert_eq!(Cdp::dial(&next, &status).await.pages().await.len(), 1);
            assert_eq!(seen(&next, &status).await, whole());
        }
        client.shutdown().await.unwrap();
        assert_eq!(end(&mut events).await.0, ExitReason::Shutdown);
    }
}

#[tokio::test]
async fn a_profile_loaded_into_a_living_session_takes_the_place_of_everything_before() {
    let first = Sandbox::start(&config(true));
    let status = first.ready("before a login").await;
    log_in(&first, &status).await;
    let archive = capture(&first.client().await).await;
    drop(first);
    for headless in [true, false] {
        let (sandbox, status, client) = Sandbox::with_browser(&config(headless), "before a profile").await;
        let mut cdp = Cdp::dial(&sandbox, &status).await;
        let page = visit(&mut cdp, "http://localhost/kept").await;
        cdp.evaluate(&page, "document.cookie = 'before=1'; localStorage.before = 'here'").await;
        assert_eq!(refusal(client.restart(&with_profile()).await), ErrorCode::Missing);
        assert_eq!(client.status().await.unwrap(), status);
        load(&client, &archive).await.unwrap();
        let began = Instant::now();
        let status = client.restart(&with_profile()).await.unwrap();
        println!("headless {headless}: started anew in {:?}", began.elapsed());
        let mut cdp = Cdp::dial(&sandbox, &status).await;
        assert_eq!(cdp.pages().await.len(), 1);
        assert_eq!(seen(&sandbox, &status).await, whole());
        let page = visit(&mut cdp, "http://localhost/kept").await;
        assert_eq!(cdp.evaluate(&page, "localStorage.before ?? null").await, Value::Null);
        cdp.until(&page, "innerWidth", &json!(900)).await;
        client.handout(None, None, SLOWLY).await.unwrap();
        // Once more from the beginning.
        assert_eq!(refusal(client.restart(&with_profile()).await), ErrorCode::Missing);
        load(&client, &archive).await.unwrap();
        client.restart(&with_profile()).await.unwrap();
    }
}

/// Chromium writes the local storage in a process for which it does not wait when it closes.
#[tokio::test]
async fn local_storage_is_in_the_profile_even_if_its_process_is_stopped_at_the_close() {
    let first = Sandbox::start(&config(true));
    let status = first.ready("before it closes").await;
    let mut cdp = Cdp::dial(&first, &status).await;
    let page = visit(&mut cdp, LOGIN).await;
    cdp.evaluate(&page, "localStorage.kept = 'stored'").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let writers = first.processes("storage.mojom.StorageService");
    assert!(!writers.is_empty());
    writers.iter().for_each(|pid| signal(*pid, "STOP"));
    let (client, browser) = (first.client().await, first.browser());
    let closing = tokio::spawn(async move { capture(&client).await });
    while Path::new("/proc").join(browser.to_string()).exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for pid in writers {
        let _there_still = try_signal(pid, "CONT");
    }
    let archive = closing.await.unwrap();
    let next = Sandbox::start(&held(true));
    load(&next.client().await, &archive).await.unwrap();
    let status = next.client().await.restart(&with_profile()).await.unwrap();
    let mut cdp = Cdp::dial(&next, &status).await;
    let page = visit(&mut cdp, "http://localhost/kept").await;
    assert_eq!(cdp.evaluate(&page, "localStorage.kept ?? null").await, json!("stored"));
}

#[tokio::test]
async fn what_was_written_in_the_last_moment_is_in_the_profile() {
    for n in 0..3 {
        let first = Sandbox::start(&config(true));
        let status = first.ready("before the last moment").await;
        let mut cdp = Cdp::dial(&first, &status).await;
        let page = visit(&mut cdp, LOGIN).await;
        let write = format!("document.cookie = 'last={n}; max-age=999'; localStorage.last = '{n}'");
        cdp.evaluate(&page, &write).await;
        let archive = capture(&first.client().await).await;
        let next = Sandbox::start(&held(true));
        let client = next.client().await;
        load(&client, &archive).await.unwrap();
        let status = client.restart(&with_profile()).await.unwrap();
        let mut cdp = Cdp::dial(&next, &status).await;
        let page = visit(&mut cdp, "http://localhost/kept").await;
        let seen = cdp.evaluate(&page, "document.cookie + localStorage.last").await;
        assert_eq!(seen, json!(format!("last={n}{n}")));
    }
}

#[tokio::test]
async fn a_profile_that_cannot_be_used_is_refused_and_the_session_goes_on() {
    let (sandbox, status, client) = Sandbox::with_browser(&config(true), "before bad profiles").await;
    for bad in [&b"no archive"[..], b""] {
        assert_eq!(refusal(load(&client, bad).await), ErrorCode::NotAllowed);
        assert_eq!(refusal(client.restart(&with_profile()).await), ErrorCode::Missing);
    }
    let broken = stream::iter([Ok(Bytes::from_static(b"\x28\xb5")), Err(std::io::Error::other("cut"))]);
    client.upload::<Value>(LOAD, &(), broken, TEST_TIMEOUT).await.unwrap_err();
    let home = format!("/proc/{}/root/home/casement", sandbox.browser());
    // The agent notices the broken connection a moment later.
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let left: Vec<_> = std::fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        if !left.iter().any(|name| name.to_string_lossy().starts_with("profile.")) {
            break;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(client.status().await.unwrap(), status);
    assert_eq!(seen(&sandbox, &status).await, nothing());
}

#[tokio::test]
async fn a_browser_that_ended_by_itself_leaves_its_profile_to_whoever_wants_it() {
    let mut sandbox = Sandbox::start(&AgentConfig { keeps_profile: true, ..config(true) });
    let status = sandbox.ready("before a crash").await;
    log_in(&sandbox, &status).await;
    let client = sandbox.client().await;
    let mut events = client.events().await.unwrap();
    signal(sandbox.browser(), "KILL");
    assert_eq!(end(&mut events).await.0, ExitReason::Crashed);
    let archive = capture(&client).await;
    client.shutdown().await.unwrap();
    assert_eq!(sandbox.ended().await, Some(1));

    let next = Sandbox::start(&held(true));
    let client = next.client().await;
    load(&client, &archive).await.unwrap();
    let status = client.restart(&with_profile()).await.unwrap();
    // State that the browser had not written yet is lost, like in a crash.
    let seen = seen(&next, &status).await;
    assert_eq!((&seen["cached"], &seen["filed"]), (&json!("cached"), &json!("filed")), "{seen}");
}

#[tokio::test]
async fn a_browser_that_was_never_started_has_no_profile() {
    let sandbox = Sandbox::start(&held(true));
    let client = sandbox.client().await;
    let refused = client.download(CAPTURE, &(), TEST_TIMEOUT).await.map(drop);
    assert_eq!(refusal(refused), ErrorCode::NotReady);
    client.restart(&RestartRequest::default()).await.unwrap();
    assert!(!capture(&client).await.is_empty());
}
