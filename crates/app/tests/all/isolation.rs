//! Tests that state of one caller is not visible to another.
//!
//! `memories` tests state that needs a host name, a certificate or a person.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use casement_test_support::archives::zip;
use casement_test_support::program::{Cdp, Options, Process, Server, Session, processes_of, until};
use serde_json::json;

use super::extensions::{form, send};
use super::host::{all_of, browser_of, chromium, sandbox};
use super::site::Site;

pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of kinds of state that one caller creates and the next one searches.
const KINDS: usize = 17;

pub(super) struct Place {
    pub(super) server: Server,
    pub(super) site: Site,
}

static PLACE: OnceLock<Place> = OnceLock::new();

/// Returns the server for all tests of this file. Its browsers reach the site and nothing else on this machine.
pub(super) fn place() -> &'static Place {
    PLACE.get_or_init(|| {
        let site = Site::start().unwrap();
        let options = Options { egress_allow: vec![site.address.to_string()], ..Options::default() };
        Place { server: Server::start(options).unwrap(), site }
    })
}

/// The connection of a caller, and the open page.
pub(super) struct Visit {
    pub(super) client: Cdp,
    pub(super) page: String,
    origin: String,
}

impl Visit {
    pub(super) fn of(session: &Session, site: &Site) -> anyhow::Result<Self> {
        Ok(Self { origin: site.url(""), ..Self::to(session)? })
    }

    /// Connects to a session, without an origin for permissions.
    pub(super) fn to(session: &Session) -> anyhow::Result<Self> {
        let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = client.page()?;
        client.call_in(Some(&page), "Emulation.setFocusEmulationEnabled", &json!({ "enabled": true }))?;
        Ok(Self { client, page, origin: String::new() })
    }

    fn grant(&mut self, permissions: &[&str]) -> anyhow::Result<()> {
        let params = json!({ "origin": self.origin, "permissions": permissions });
        self.client.call("Browser.grantPermissions", &params).map(drop)
    }

    /// Returns for each kind of state of a page whether it is present.
    fn look(&mut self) -> anyhow::Result<BTreeMap<String, bool>> {
        let mut found: BTreeMap<String, bool> = serde_json::from_value(self.client.evaluate(&self.page, "look()")?)?;
        self.grant(&["clipboardReadWrite", "clipboardSanitizedWrite"])?;
        let clipboard = self.client.evaluate(&self.page, "clipboard()")?;
        found.insert("clipboard".to_owned(), clipboard == true);
        Ok(found)
    }

    /// Returns the numbers of tabs and of history entries.
    fn traces(&mut self) -> anyhow::Result<(usize, usize)> {
        let targets = self.client.call("Target.getTargets", &json!({}))?;
        let tabs = targets["targetInfos"].as_array().context("no targets")?;
        let tabs = tabs.iter().filter(|target| target["type"] == "page").count();
        let history = self.client.call_in(Some(&self.page), "Page.getNavigationHistory", &json!({}))?;
        Ok((tabs, history["entries"].as_array().map_or(0, Vec::len)))
    }
}

/// Returns the kinds of state that are present.
fn present(found: &BTreeMap<String, bool>) -> Vec<&str> {
    found.iter().filter(|(_, there)| **there).map(|(kind, _)| kind.as_str()).collect()
}

/// Returns the files of a session with the word in their name or content, in the mounts of its browser.
pub(super) fn files_with(browser: &Process, word: &str) -> Vec<String> {
    let root = format!("/proc/{}/root", browser.pid);
    let mut found = Vec::new();
    let mut rest: Vec<_> = ["tmp", "home", "dev/shm", "run"].map(|name| Path::new(&root).join(name)).into();
    while let Some(path) = rest.pop() {
        let Ok(kind) = fs::symlink_metadata(&path).map(|meta| meta.file_type()) else { continue };
        // This folder is the same for all sessions, and read-only.
        if path.ends_with("run/casement/runner") {
            continue;
        }
        if kind.is_dir() {
            rest.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        let named = path.file_name().is_some_and(|name| name.to_string_lossy().contains(word));
        let holds = || {
            let program = path.ends_with("run/casement/program");
            let bytes = if kind.is_file() && !program { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            bytes.windows(word.len()).any(|window| window == word.as_bytes())
        };
        if named || holds() {
            found.push(path.display().to_string());
        }
    }
    found
}

pub(super) fn first_process(server: &Server, session: &Session) -> anyhow::Result<Process> {
    Ok(chromium(server, &browser_of(server, session)?)?.remove(0))
}

/// Returns true if a process of the session has the word in its environment, inspected from the host.
fn runs_with(server: &Server, session: &Session, word: &str) -> anyhow::Result<bool> {
    let holds = |process: &Process| {
        let variables = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        variables.windows(word.len()).any(|window| window == word.as_bytes())
    };
    Ok(all_of(server, &browser_of(server, session)?).iter().any(holds))
}

/// Returns true if a program in the session finds the word in the environment of any process.
fn finds_in_environments(server: &Server, session: &Session, word: &str) -> anyhow::Result<bool> {
    let line = format!("cat /proc/[0-9]*/environ 2>/dev/null | grep -q {word}");
    let path = format!("/browsers/{}/process/exec", session.id());
    let ended = server.post(&path, &json!({ "command": line, "timeout_sec": 110 }))?.expect(200)?.json()?;
    match ended["exit_code"].as_i64() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("{ended}"),
    }
}

/// Returns for each kind of state of a caller whether it is present.
fn look(server: &Server, session: &Session, visit: &mut Visit) -> anyhow::Result<BTreeMap<String, bool>> {
    let mut found = visit.look()?;
    found.insert("environment".to_owned(), runs_with(server, session, "canary")?);
    found.insert("environment, from inside".to_owned(), finds_in_environments(server, session, "canary")?);
    Ok(found)
}

/// Creates state of every kind in the session.
fn plant(server: &Server, session: &Session, site: &Site) -> anyhow::Result<Visit> {
    let mut first = Visit::of(session, site)?;
    first.grant(&["clipboardReadWrite", "clipboardSanitizedWrite", "geolocation", "notifications"])?;
    let with_password = site.url("/locked").replacen("http://", "http://canary:canary@", 1);
    let page = first.page.clone();
    first.client.open(&page, &with_password)?;
    first.client.open(&page, &site.url("/plant?canary-visited"))?;
    first.client.evaluate(&page, "plant()")?;
    first.client.call("Target.createTarget", &json!({ "url": site.url("/?canary-tab") }))?;
    // A directory that the session does not have would become that of its downloads.
    let folder = json!({ "path": "/tmp/canary-downloads" });
    server.send("PUT", &format!("/browsers/{}/fs/create_directory", session.id()), Some(&folder))?.expect(204)?;
    let download = json!({ "behavior": "allow", "downloadPath": "/tmp/canary-downloads" });
    first.client.call("Browser.setDownloadBehavior", &download)?;
    first.client.evaluate(&page, "void Object.assign(document.createElement('a'), { href: '/download' }).click()")?;
    let program = json!({ "command": "sleep", "args": ["3600"], "env": { "CANARY": "canary" } });
    server.post(&format!("/browsers/{}/process/spawn", session.id()), &program)?.expect(201)?;
    Ok(first)
}

fn nothing_is_handed_on(pool: &str, headless: bool) -> anyhow::Result<()> {
    let Place { server, site } = place();
    server.post("/browser_pools", &json!({ "name": pool, "size": 1, "headless": headless }))?.expect(201)?;
    let session = server.acquire(pool)?;
    let browser = browser_of(server, &session)?;
    let process = first_process(server, &session)?;
    let mut first = plant(server, &session, site)?;
    let downloaded = format!("/proc/{}/root/tmp/canary-downloads/canary.txt", process.pid);
    until("the download is there", TEST_TIMEOUT, || Path::new(&downloaded).exists().then_some(()))?;
    // Until its `exec`, the process has the environment of its parent.
    until("the program runs", TEST_TIMEOUT, || runs_with(server, &session, "canary").ok()?.then_some(()))?;
    let planted = look(server, &session, &mut first)?;
    let missing: Vec<_> = planted.iter().filter(|(_, there)| !**there).collect();
    assert!(planted.len() == KINDS && missing.is_empty(), "what was left is not seen where it was left: {missing:?}");
    let (tabs, pages) = first.traces()?;
    assert!(tabs == 2 && pages > 2, "{tabs} tabs, {pages} pages");
    assert!(!files_with(&process, "canary").is_empty(), "files");

    let other = server.create(&json!({ "headless": headless, "timeout_seconds": 600 }))?;
    assert_clean(server, site, &other).context("another session at the same time")?;

    server.release(pool, &session)?;
    assert!(processes_of(&sandbox(server, &browser)).is_empty(), "its processes, and all that they remember, are gone");
    assert!(!sandbox(server, &browser).exists());
    let next = server.acquire(pool)?;
    assert_ne!(browser_of(server, &next)?, browser);
    assert_clean(server, site, &next).context("the next caller of the pool")?;
    server.delete(&format!("/browsers/{}", other.id()))?.expect(204)?;
    server.send("DELETE", &format!("/browser_pools/{pool}"), Some(&json!({ "force": true })))?.expect(204).map(drop)
}

#[test]
fn nothing_of_a_headless_session_is_there_for_the_next_or_another_caller() -> anyhow::Result<()> {
    nothing_is_handed_on("canary", true)
}

#[test]
fn nothing_of_a_headful_session_is_there_for_the_next_or_another_caller() -> anyhow::Result<()> {
    nothing_is_handed_on("canary-on-a-display", false)
}

/// A content script that forwards messages between a page and its extension.
const FORWARDER: &str = "addEventListener('message', async event => { if (event.data.ask) \
    postMessage({ answer: await chrome.runtime.sendMessage(event.data.ask) }) })";
/// A worker that requests a URL, stores a word, and responds with the stored word.
const BACKGROUND: &str = "chrome.runtime.onMessage.addListener((ask, _, done) => { (async () => { \
    if (ask.url) await fetch(ask.url, { mode: 'no-cors' }).catch(() => {}); \
    if (ask.keep) await chrome.storage.local.set({ kept: ask.keep }); \
    done((await chrome.storage.local.get('kept')).kept ?? 'nothing'); })(); return true; })";

/// Returns the response of a session's extension.
fn ask_extension(session: &Session, site: &Site, ask: &serde_json::Value) -> anyhow::Result<String> {
    let mut visit = Visit::of(session, site)?;
    let page = visit.page.clone();
    visit.client.open(&page, &site.url("/"))?;
    // The content script may start after the page, so the message is repeated until it responds.
    let script = format!(
        "new Promise(done => {{ const again = setInterval(() => postMessage({{ ask: {ask} }}), 300); \
         addEventListener('message', ({{ data }}) => {{ if ('answer' in data) {{ clearInterval(again); done(data.answer) }} }}) }})"
    );
    Ok(visit.client.evaluate(&page, &script)?.as_str().context("no word")?.to_owned())
}

#[test]
fn an_extension_reaches_nothing_inside_and_its_storage_ends_with_the_session() -> anyhow::Result<()> {
    let Place { server, site } = place();
    let manifest = json!({
        "manifest_version": 3, "name": "canary", "version": "1", "permissions": ["storage"],
        "host_permissions": ["<all_urls>"], "background": { "service_worker": "background.js" },
        "content_scripts": [{ "matches": ["http://*/*"], "js": ["asked.js"] }],
    });
    let archive =
        zip(&[("manifest.json", &manifest.to_string()), ("asked.js", FORWARDER), ("background.js", BACKGROUND)])?;
    send(server, form("/extensions", &[("name", "canary")], &[("file", &archive)]))?.expect(201)?;
    let body = json!({ "headless": true, "timeout_seconds": 600, "extensions": [{ "name": "canary" }] });
    let open = TcpListener::bind("127.0.0.1:0")?;
    open.set_nonblocking(true)?;

    let first = server.create(&body)?;
    let inside = format!("http://{}/", open.local_addr()?);
    assert_eq!(ask_extension(&first, site, &json!({ "keep": "canary", "url": inside }))?, "canary");
    let allowed = json!({ "url": site.url("/way?extension") });
    assert_eq!(ask_extension(&first, site, &allowed)?, "canary", "it is there as long as the session");
    assert!(site.was_requested("/way?extension"), "the extension can ask for what is allowed");
    assert!(open.accept().is_err(), "somebody came");
    let other = server.create(&body)?;
    assert_eq!(ask_extension(&other, site, &json!({}))?, "nothing", "another session at the same time");
    server.delete(&format!("/browsers/{}", first.id()))?.expect(204)?;
    let next = server.create(&body)?;
    assert_eq!(ask_extension(&next, site, &json!({}))?, "nothing", "the next session");
    for session in [other, next] {
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    server.delete("/extensions/canary")?.expect(204).map(drop)
}

fn assert_clean(server: &Server, site: &Site, session: &Session) -> anyhow::Result<()> {
    let mut visit = Visit::of(session, site)?;
    let (tabs, pages) = visit.traces()?;
    ensure!((tabs, pages) == (1, 1), "{tabs} tabs are open, {pages} pages were visited");
    let files = files_with(&first_process(server, session)?, "canary");
    ensure!(files.is_empty(), "files: {files:#?}");
    let page = visit.page.clone();
    visit.client.open(&page, &site.url("/"))?;
    let found = look(server, session, &mut visit)?;
    ensure!(found.len() == KINDS && present(&found).is_empty(), "still there: {:?}", present(&found));
    Ok(())
}

/// Opens a URL and returns the text of the page, or Chromium's error.
pub(super) fn shown(visit: &mut Visit, url: &str) -> anyhow::Result<String> {
    let page = visit.page.clone();
    until("the page before", TEST_TIMEOUT, || visit.client.evaluate(&page, "window.left = true").ok())?;
    let answer = visit.client.call_in(Some(&page), "Page.navigate", &json!({ "url": url }))?;
    let error = answer["errorText"].as_str().unwrap_or_default();
    if !error.is_empty() {
        // The error page, if any, is shown later.
        let comes = || (visit.client.evaluate(&page, "!window.left").ok()? == true).then_some(());
        drop(until("the page of the error", Duration::from_secs(5), comes));
        return Ok(error.to_owned());
    }
    // `window.left` identifies the previous page.
    let whole = "!window.left && document.readyState == 'complete' ? document.documentElement.innerText : null";
    until(url, TEST_TIMEOUT, || visit.client.evaluate(&page, whole).ok()?.as_str().map(str::to_owned))
}
