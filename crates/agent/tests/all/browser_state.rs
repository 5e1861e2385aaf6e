//! Cookies and local storage over the debugging protocol, with a real browser.

use casement_agent_protocol::ErrorCode;
use std::time::Instant;

use casement_agent_protocol::browser_state::{
    BrowserState, Cookie, MAX_ANSWER_BYTES, MAX_ORIGINS, OriginStorage, READ, ReadState, StateReading, StateWritten,
    StorageText, WRITE,
};
use casement_agent_protocol::client::{AgentClient, ClientError};
use serde_json::{Value, json};

use crate::cdp::Cdp;
use crate::headless::refusal;
use crate::sandbox::{Sandbox, config};
use crate::script::LONG;

/// Stores something as pages do, with a service worker that would answer for the site.
const MAKE: &str = r"(async () => {
    document.cookie = 'session=1';
    document.cookie = 'strict=ü; max-age=9999; samesite=strict; path=/kept';
    document.cookie = 'secure=1; max-age=9999; secure; samesite=none';
    document.cookie = 'parted=1; max-age=9999; secure; samesite=none; partitioned; path=/';
    localStorage.kept = 'stored';
    localStorage.setItem('length', 'ü€😀\u2028');
    localStorage.setItem('__proto__', '\ud800half');
    localStorage.setItem('\udc00', '');
    await navigator.serviceWorker.register('/kept.js');
    await navigator.serviceWorker.ready;
})()";

/// What a page sees of it.
const LOOK: &str =
    "JSON.stringify([document.cookie.split('; ').sort(), localStorage.kept, localStorage.getItem('__proto__')])";

async fn read(client: &AgentClient, origins: &[&str]) -> StateReading {
    let request = ReadState { origins: origins.iter().map(|origin| (*origin).to_owned()).collect() };
    let began = Instant::now();
    let reading = client.download(READ, &request, LONG).await.unwrap().collect(MAX_ANSWER_BYTES).await.unwrap();
    let reading: StateReading = serde_json::from_slice(&reading).unwrap();
    println!("{reading:?} after {:?}", began.elapsed());
    reading
}

async fn write(client: &AgentClient, state: &BrowserState) -> Result<StateWritten, ClientError> {
    let began = Instant::now();
    let written = client.call(WRITE, state, LONG).await;
    println!("{state:?} written after {:?}", began.elapsed());
    written
}

fn storage(origin: &str, items: &[(&str, &str)]) -> OriginStorage {
    let local_storage = items.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    OriginStorage { origin: origin.to_owned(), local_storage }
}

fn cookie(name: &str, value: &str, domain: &str) -> Cookie {
    Cookie { name: name.into(), value: value.into(), domain: domain.into(), path: "/".into(), ..Cookie::default() }
}

async fn page(sandbox: &Sandbox, client: &AgentClient, url: &str) -> (Cdp, String) {
    let mut cdp = Cdp::dial(sandbox, &client.status().await.unwrap()).await;
    let session = cdp.page(url, false).await;
    (cdp, session)
}

#[tokio::test]
async fn a_state_read_from_one_browser_and_written_to_another_is_equal() {
    let (first, _, client) = Sandbox::with_browser(&config(true), "the first").await;
    let (mut cdp, session) = page(&first, &client, "http://localhost/kept").await;
    cdp.evaluate(&session, MAKE).await;
    let seen = cdp.evaluate(&session, LOOK).await;
    let before = requests(&first);
    let tabs = cdp.pages().await;

    let reading = read(&client, &["https://gone.test", "ftp://a.test"]).await;
    assert!(reading.origins_listed, "{reading:?}");
    assert_eq!((reading.origins_left_out, reading.cookies_left_out), (0, 0));
    let state = reading.state;
    let names: Vec<&str> = state.cookies.iter().map(|cookie| cookie.name.as_str()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(state.cookies.iter().any(|cookie| cookie.partition.is_some()));
    let origins: Vec<(&str, usize)> =
        state.origins.iter().map(|storage| (storage.origin.as_str(), storage.local_storage.len())).collect();
    assert_eq!(origins, [("http://localhost", 4), ("https://gone.test", 0)]);
    assert_eq!(cdp.pages().await, tabs, "no page is left");

    let (second, _, other) = Sandbox::with_browser(&config(true), "the second").await;
    assert_eq!(write(&other, &state).await.unwrap(), StateWritten::default());
    assert_eq!(comparable(read(&other, &["https://gone.test"]).await.state), comparable(state));
    assert_eq!(requests(&first), before, "no site was asked for anything");
    assert_eq!(requests(&second), Vec::<String>::new());
    let (mut cdp, session) = page(&second, &other, "http://localhost/kept").await;
    assert_eq!(cdp.evaluate(&session, LOOK).await, seen);
    let history = cdp.call(Some(&session), "Page.getNavigationHistory", json!({})).await;
    assert!(!history.to_string().contains("gone.test"));
}

/// Returns the URLs of the requests that left a sandbox, without the connections that Chromium opens in advance.
fn requests(sandbox: &Sandbox) -> Vec<String> {
    sandbox.seen.lock().iter().filter(|url| url.contains("://")).cloned().collect()
}

/// Returns the JSON of a state with sorted cookies and rounded expiries, which the protocol gives as floating-point
/// numbers. Without the sources of secure cookies, because the protocol does not accept that of http://localhost.
fn comparable(mut state: BrowserState) -> String {
    state.cookies.sort_by(|one, other| one.name.cmp(&other.name));
    for cookie in &mut state.cookies {
        cookie.expires = cookie.expires.map(f64::round);
        if cookie.secure {
            (cookie.source_scheme, cookie.source_port) = (None, None);
        }
    }
    serde_json::to_string_pretty(&state).unwrap()
}

#[tokio::test]
async fn a_written_state_replaces_cookies_and_the_named_origins() {
    let (_sandbox, _, client) = Sandbox::with_browser(&config(true), "replaced").await;
    let origins = vec![
        storage("https://a.test", &[("old", "1"), ("both", "1")]),
        storage("http://a.test:8080", &[("stays", "1")]),
    ];
    let before = BrowserState { cookies: vec![cookie("old", "1", "a.test"), cookie("both", "1", "a.test")], origins };
    assert_eq!(write(&client, &before).await.unwrap(), StateWritten::default());
    let origins = vec![storage("https://a.test", &[("both", "2")])];
    let after = BrowserState { cookies: vec![cookie("both", "2", "a.test")], origins };
    assert_eq!(write(&client, &after).await.unwrap(), StateWritten::default());
    let state = read(&client, &[]).await.state;
    let values: Vec<(&str, &str)> = state.cookies.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect();
    assert_eq!(values, [("both", "2")]);
    let expected = [storage("http://a.test:8080", &[("stays", "1")]), storage("https://a.test", &[("both", "2")])];
    assert_eq!(state.origins, expected);
    let empty = BrowserState { origins: vec![storage("https://a.test", &[])], ..BrowserState::default() };
    assert_eq!(write(&client, &empty).await.unwrap(), StateWritten::default());
    assert_eq!(read(&client, &[]).await.state.origins, [storage("http://a.test:8080", &[("stays", "1")])]);
}

#[tokio::test]
async fn what_a_browser_does_not_accept_is_counted_and_nothing_else_is_lost() {
    let (_sandbox, _, client) = Sandbox::with_browser(&config(true), "hostile").await;
    let mut cookies: Vec<Cookie> = (0..20).map(|number| cookie(&format!("good{number}"), "1", "a.test")).collect();
    let long = "x".repeat(5000);
    let with = |change: fn(&mut Cookie)| {
        let mut cookie = cookie("odd", "1", "a.test");
        change(&mut cookie);
        cookie
    };
    cookies.insert(3, cookie("control", "a\u{1}b", "a.test"));
    cookies.insert(7, cookie("long", &long, "a.test"));
    cookies.insert(11, cookie("nowhere", "1", ""));
    cookies.insert(13, with(|cookie| cookie.same_site = Some("Sometimes".into())));
    cookies.insert(15, with(|cookie| cookie.source_port = Some(-99_999)));
    let giant = "x".repeat(6 << 20);
    let origins = vec![
        storage("https://giant.test", &[("begun", "1"), ("giant", &giant)]),
        storage("file:///etc/passwd", &[("a", "1")]),
        storage("chrome://settings", &[("a", "1")]),
        storage("https://a.test/path", &[("a", "1")]),
        storage("https://a.test", &[("'\"</script>`${1}\\", "\0\u{7}\n")]),
        storage("https://A.test:443/", &[("repeated", "1")]),
        // The browser opens it with https only, as every site of its list of such hosts.
        storage("http://google.com", &[("a", "1")]),
        OriginStorage {
            origin: "https://units.test".into(),
            local_storage: vec![("a".into(), StorageText::Units { utf16: "§".into() })],
        },
    ];
    let written = write(&client, &BrowserState { cookies, origins }).await.unwrap();
    assert_eq!(written.origins_refused, 7, "{written:?}");
    let state = read(&client, &["https://giant.test"]).await.state;
    // Of an unknown property the browser takes its default.
    assert_eq!(written.cookies_refused, 3, "{written:?}");
    assert_eq!(state.cookies.iter().filter(|cookie| cookie.name.starts_with("good")).count(), 20);
    let expected =
        [storage("https://a.test", &[("'\"</script>`${1}\\", "\0\u{7}\n")]), storage("https://giant.test", &[])];
    assert_eq!(state.origins, expected);
}

#[tokio::test]
async fn a_state_beyond_the_limits_is_refused_or_read_in_part() {
    let (_sandbox, _, client) = Sandbox::with_browser(&config(true), "large").await;
    let origin = storage("https://a.test", &[]);
    let many = BrowserState { origins: vec![origin; MAX_ORIGINS + 1], ..BrowserState::default() };
    assert_eq!(refusal(write(&client, &many).await), ErrorCode::TooLarge);
    let origins = vec!["https://a.test".to_owned(); MAX_ORIGINS + 1];
    let refused = client.call::<Value>(READ, &ReadState { origins }, LONG).await;
    assert_eq!(refusal(refused), ErrorCode::OutOfRange);

    let large = "x".repeat(5 << 20);
    for number in 0..4 {
        let origins = vec![storage(&format!("https://large{number}.test"), &[("a", &large[1..])])];
        let state = BrowserState { origins, ..BrowserState::default() };
        assert_eq!(write(&client, &state).await.unwrap(), StateWritten::default());
    }
    let reading = read(&client, &[]).await;
    assert_eq!((reading.state.origins.len(), reading.origins_left_out), (3, 1));
}

#[tokio::test]
async fn what_pages_have_just_stored_is_read_and_a_blocked_page_does_not_prevent_it() {
    let (sandbox, _, client) = Sandbox::with_browser(&config(true), "just stored").await;
    let (mut cdp, session) = page(&sandbox, &client, "http://localhost/kept").await;
    let other = cdp.page("http://localhost/empty", false).await;
    for round in 0..10 {
        let store = format!("localStorage.round = '{round} ' + 'a'.repeat(1e6)");
        cdp.evaluate(if round % 2 == 0 { &session } else { &other }, &store).await;
        let state = read(&client, &[]).await.state;
        let stored = serde_json::to_string(&state).unwrap();
        assert!(stored.contains(&format!("\"{round} aaa")), "round {round}: {stored:.300}");
    }
    cdp.evaluate(&session, "localStorage.round = 'last', setTimeout(() => { for (;;); })").await;
    let stored = serde_json::to_string(&read(&client, &[]).await.state).unwrap();
    assert!(stored.contains("\"last\""), "{stored:.300}");
}

#[tokio::test]
async fn a_browser_without_a_list_is_read_where_it_has_been() {
    let (sandbox, status, client) = Sandbox::with_browser(&config(true), "without a list").await;
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    cdp.evaluate(&page, "location.href = 'http://localhost/empty'").await;
    cdp.until(&page, "location.href", &json!("http://localhost/empty")).await;
    cdp.evaluate(&page, "localStorage.here = 1").await;
    cdp.evaluate(&page, "location.href = 'http://page.test/'").await;
    cdp.until(&page, "document.title", &json!("coloured")).await;
    let state = BrowserState {
        cookies: vec![cookie("a", "1", ".cookie.test")],
        origins: ["https://given.test", "https://cookie.test", "https://unseen.test"]
            .map(|origin| storage(origin, &[("a", "1")]))
            .to_vec(),
    };
    assert_eq!(write(&client, &state).await.unwrap(), StateWritten::default());
    // This client makes all new pages wait, so that the browser's own page with the list does not load.
    let paused = json!({
        "autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true, "filter": [{ "type": "page" }],
    });
    cdp.call(None, "Target.setAutoAttach", paused).await;
    let reading = read(&client, &["https://given.test"]).await;
    assert!(!reading.origins_listed);
    let origins: Vec<&str> = reading.state.origins.iter().map(|storage| storage.origin.as_str()).collect();
    assert_eq!(origins, ["http://localhost", "https://cookie.test", "https://given.test"]);
}
