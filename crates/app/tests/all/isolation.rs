//! What one caller leaves is never seen by another, and a page reaches nothing but what it was let reach.
//!
//! What needs a name, a certificate or a person to be left or looked for stands in `memories`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Seek as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use super::extensions::{form, send, zip};
use super::host::{all_of, browser_of, chromium, kind, sandbox};
use super::site::Site;
use super::support::{Cdp, Options, Process, Server, Session, processes_of, until};

const SOON: Duration = Duration::from_secs(60);
/// How many kinds of things one caller leaves, and the next looks for.
const KINDS: usize = 17;

struct Place {
    server: Server,
    site: Site,
}

static PLACE: OnceLock<Place> = OnceLock::new();

/// One server for all tests here, whose browsers reach the site and nothing else on this machine.
fn place() -> &'static Place {
    PLACE.get_or_init(|| {
        let site = Site::start().unwrap();
        let options = Options { egress_allow: vec![site.address.to_string()], ..Options::default() };
        Place { server: Server::start(options).unwrap(), site }
    })
}

/// The first caller's connection, and the page it has open.
pub(super) struct Visit {
    pub(super) client: Cdp,
    pub(super) page: String,
    origin: String,
}

impl Visit {
    fn of(session: &Session, site: &Site) -> anyhow::Result<Self> {
        Ok(Self { origin: site.url(""), ..Self::to(session)? })
    }

    /// One that asks for no permissions.
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

    /// What is there of all that a page can leave, by kind.
    fn look(&mut self) -> anyhow::Result<BTreeMap<String, bool>> {
        let mut found: BTreeMap<String, bool> = serde_json::from_value(self.client.evaluate(&self.page, "look()")?)?;
        self.grant(&["clipboardReadWrite", "clipboardSanitizedWrite"])?;
        let clipboard = self.client.evaluate(&self.page, "clipboard()")?;
        found.insert("clipboard".to_owned(), clipboard == true);
        Ok(found)
    }

    /// What shows before anything was opened: tabs, and where they were.
    fn traces(&mut self) -> anyhow::Result<(usize, usize)> {
        let targets = self.client.call("Target.getTargets", &json!({}))?;
        let tabs = targets["targetInfos"].as_array().context("no targets")?;
        let tabs = tabs.iter().filter(|target| target["type"] == "page").count();
        let history = self.client.call_in(Some(&self.page), "Page.getNavigationHistory", &json!({}))?;
        Ok((tabs, history["entries"].as_array().map_or(0, Vec::len)))
    }
}

/// The kinds of which something is there.
fn present(found: &BTreeMap<String, bool>) -> Vec<&str> {
    found.iter().filter(|(_, there)| **there).map(|(kind, _)| kind.as_str()).collect()
}

/// The files of a session that hold the word in their name or their content, as its browser sees them.
pub(super) fn files_with(browser: &Process, word: &str) -> Vec<String> {
    let root = format!("/proc/{}/root", browser.pid);
    let mut found = Vec::new();
    let mut rest: Vec<_> = ["tmp", "home", "dev/shm", "run"].map(|name| Path::new(&root).join(name)).into();
    while let Some(path) = rest.pop() {
        let Ok(kind) = fs::symlink_metadata(&path).map(|meta| meta.file_type()) else { continue };
        // The same for all sessions, and nobody can write there.
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

/// Whether a process of the session has the word in its environment, as the host sees them all.
fn runs_with(server: &Server, session: &Session, word: &str) -> anyhow::Result<bool> {
    let holds = |process: &Process| {
        let variables = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        variables.windows(word.len()).any(|window| window == word.as_bytes())
    };
    Ok(all_of(server, &browser_of(server, session)?).iter().any(holds))
}

/// Whether a program that the session's caller starts finds the word in its own environment or in that of another.
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

/// What is there of all that a caller can leave, by kind.
fn look(server: &Server, session: &Session, visit: &mut Visit) -> anyhow::Result<BTreeMap<String, bool>> {
    let mut found = visit.look()?;
    found.insert("environment".to_owned(), runs_with(server, session, "canary")?);
    found.insert("environment, from inside".to_owned(), finds_in_environments(server, session, "canary")?);
    Ok(found)
}

/// Leaves something of every kind in the session.
fn plant(server: &Server, session: &Session, site: &Site) -> anyhow::Result<Visit> {
    let mut first = Visit::of(session, site)?;
    first.grant(&["clipboardReadWrite", "clipboardSanitizedWrite", "geolocation", "notifications"])?;
    let with_password = site.url("/locked").replacen("http://", "http://canary:canary@", 1);
    let page = first.page.clone();
    first.client.open(&page, &with_password)?;
    first.client.open(&page, &site.url("/plant?canary-visited"))?;
    first.client.evaluate(&page, "plant()")?;
    first.client.call("Target.createTarget", &json!({ "url": site.url("/?canary-tab") }))?;
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
    until("the download is there", SOON, || Path::new(&downloaded).exists().then_some(()))?;
    // It begins with the environment of whoever starts it.
    until("the program runs", SOON, || runs_with(server, &session, "canary").ok()?.then_some(()))?;
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
fn e1_e2_nothing_that_one_caller_leaves_is_there_for_the_next_or_for_another() -> anyhow::Result<()> {
    nothing_is_handed_on("canary", true)
}

#[test]
fn e1_e2_nothing_that_one_caller_leaves_on_a_display_is_there_for_the_next_or_for_another() -> anyhow::Result<()> {
    nothing_is_handed_on("canary-on-a-display", false)
}

/// Forwards what a page asks of an extension.
const ASKED: &str = "addEventListener('message', async event => { if (event.data.ask) \
    postMessage({ answer: await chrome.runtime.sendMessage(event.data.ask) }) })";
/// Keeps a word, asks for an address, and says which word it kept.
const BACKGROUND: &str = "chrome.runtime.onMessage.addListener((ask, _, done) => { (async () => { \
    if (ask.url) await fetch(ask.url, { mode: 'no-cors' }).catch(() => {}); \
    if (ask.keep) await chrome.storage.local.set({ kept: ask.keep }); \
    done((await chrome.storage.local.get('kept')).kept ?? 'nothing'); })(); return true; })";

/// What the extension of a session answers.
fn ask_extension(session: &Session, site: &Site, ask: &serde_json::Value) -> anyhow::Result<String> {
    let mut visit = Visit::of(session, site)?;
    let page = visit.page.clone();
    visit.client.open(&page, &site.url("/"))?;
    // Its script comes to a page a moment after everything else, so it is asked until it answers.
    let script = format!(
        "new Promise(done => {{ const again = setInterval(() => postMessage({{ ask: {ask} }}), 300); \
         addEventListener('message', ({{ data }}) => {{ if ('answer' in data) {{ clearInterval(again); done(data.answer) }} }}) }})"
    );
    Ok(visit.client.evaluate(&page, &script)?.as_str().context("no word")?.to_owned())
}

#[test]
fn c1_e1_e2_an_extension_reaches_nothing_inside_and_what_it_keeps_ends_with_its_session() -> anyhow::Result<()> {
    let Place { server, site } = place();
    let manifest = json!({
        "manifest_version": 3, "name": "canary", "version": "1", "permissions": ["storage"],
        "host_permissions": ["<all_urls>"], "background": { "service_worker": "background.js" },
        "content_scripts": [{ "matches": ["http://*/*"], "js": ["asked.js"] }],
    });
    let archive = zip(&[("manifest.json", &manifest.to_string()), ("asked.js", ASKED), ("background.js", BACKGROUND)])?;
    send(server, form("/extensions", &[("name", "canary")], &[("file", &archive)]))?.expect(201)?;
    let wish = json!({ "headless": true, "timeout_seconds": 600, "extensions": [{ "name": "canary" }] });
    let open = TcpListener::bind("127.0.0.1:0")?;
    open.set_nonblocking(true)?;

    let first = server.create(&wish)?;
    let inside = format!("http://{}/", open.local_addr()?);
    assert_eq!(ask_extension(&first, site, &json!({ "keep": "canary", "url": inside }))?, "canary");
    let allowed = json!({ "url": site.url("/way?extension") });
    assert_eq!(ask_extension(&first, site, &allowed)?, "canary", "it is there as long as the session");
    assert!(site.was_asked("/way?extension"), "the extension can ask for what is allowed");
    assert!(open.accept().is_err(), "somebody came");
    let other = server.create(&wish)?;
    assert_eq!(ask_extension(&other, site, &json!({}))?, "nothing", "another session at the same time");
    server.delete(&format!("/browsers/{}", first.id()))?.expect(204)?;
    let next = server.create(&wish)?;
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

/// What a page is shown in place of an address, or how Chromium says that it cannot open it.
fn shown(visit: &mut Visit, url: &str) -> anyhow::Result<String> {
    let page = visit.page.clone();
    until("the page before", SOON, || visit.client.evaluate(&page, "window.left = true").ok())?;
    let answer = visit.client.call_in(Some(&page), "Page.navigate", &json!({ "url": url }))?;
    let error = answer["errorText"].as_str().unwrap_or_default();
    if !error.is_empty() {
        // What is shown of that, if anything is, comes a moment later.
        let comes = || (visit.client.evaluate(&page, "!window.left").ok()? == true).then_some(());
        drop(until("the page of the error", Duration::from_secs(5), comes));
        return Ok(error.to_owned());
    }
    // Not what stood there before.
    let whole = "!window.left && document.readyState == 'complete' ? document.documentElement.innerText : null";
    until(url, SOON, || visit.client.evaluate(&page, whole).ok()?.as_str().map(str::to_owned))
}

/// How a page has an address asked for, besides by a fetch, a socket or going there.
const WAYS: [(&str, &str); 9] = [
    ("image", "new Image().src = url"),
    ("favicon", "document.head.append(Object.assign(document.createElement('link'), { rel: 'icon', href: url }))"),
    ("prefetch", "document.head.append(Object.assign(document.createElement('link'), { rel: 'prefetch', href: url }))"),
    ("beacon", "navigator.sendBeacon(url, 'x')"),
    ("frame", "document.body.append(Object.assign(document.createElement('iframe'), { src: url }))"),
    (
        "PDF",
        "document.body.append(Object.assign(document.createElement('embed'), { type: 'application/pdf', src: url }))",
    ),
    ("film", "document.body.append(Object.assign(document.createElement('video'), { src: url, preload: 'auto' }))"),
    (
        "service worker",
        "void navigator.serviceWorker.register('/messenger.js').then(async () => \
         (await navigator.serviceWorker.ready).active.postMessage(url))",
    ),
    // Where it leads may take the place of the page, so it comes last.
    ("download", "Object.assign(document.createElement('a'), { href: '/away?' + url, download: 'x' }).click()"),
];

#[test]
fn b4_c1_a_page_that_scans_this_machine_cannot_tell_open_from_closed_and_reaches_nothing() -> anyhow::Result<()> {
    let Place { server, site } = place();
    let session = server.headless()?;
    let mut visit = Visit::of(&session, site)?;
    let page = visit.page.clone();
    let open = TcpListener::bind("127.0.0.1:0")?;
    open.set_nonblocking(true)?;
    let (open_port, server_port) = (open.local_addr()?.port(), server.address().port());

    let inside = [9222, 9515, 3128];
    let known = [open_port, server_port, 5432, 1024, 60_000];
    visit.client.open(&page, &site.url("/"))?;
    // As many as are quick to ask for; the next test asks for all of them, without a browser around it.
    let mut ports: BTreeSet<u16> = (1..=1024).chain((1025..=65_000).step_by(61)).chain(inside).chain(known).collect();
    // The page's own origin answers it, by design.
    ports.remove(&site.address.port());
    let mut said: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    for part in ports.into_iter().collect::<Vec<_>>().chunks(256) {
        let answers = visit.client.evaluate(&page, &format!("scan({})", json!(part)))?;
        for (port, what) in answers.as_object().context("no ports")? {
            said.entry(what.as_str().context("no word")?.to_owned()).or_default().insert(port.parse()?);
        }
    }
    let refused = said.remove("opaque").context("no port was asked for at all")?;
    let blocked: BTreeSet<u16> = said.remove("TypeError").unwrap_or_default();
    assert!(said.is_empty(), "{:?}", said.keys());
    // Ports that Chromium itself never asks, such as those of mail: a fixed list, whatever listens there.
    assert!(blocked.len() < 100, "{blocked:?}");
    for port in inside.into_iter().chain(known) {
        assert!(refused.contains(&port), "{port} is answered differently");
    }

    let closed = shown(&mut visit, "http://127.0.0.1:60000/json/version")?;
    assert!(!closed.is_empty() && !closed.contains("60000") && closed.len() < 2000, "{closed:?}");
    let local = [
        "127.0.0.1",
        "localhost",
        "localhost.",
        "[::1]",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0.0.0.0",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
    ];
    let names =
        local.iter().flat_map(|host| [9222, open_port, server_port, 60_000].map(|port| format!("{host}:{port}")));
    let metadata = ["169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "10.0.0.1", "192.168.0.1", "224.0.0.1"];
    for name in names.chain(metadata.map(str::to_owned)) {
        let direct = shown(&mut visit, &format!("http://{name}/json/version"))?;
        assert_eq!(direct, closed, "{name}");
        let redirected = shown(&mut visit, &site.url(&format!("/away?http://{name}/json/list")))?;
        assert_eq!(redirected, closed, "{name}, by a redirect");
    }
    visit.client.open(&page, &site.url("/"))?;
    let mut sockets = BTreeSet::new();
    for port in inside.into_iter().chain([open_port, server_port, 60_000]) {
        let told = visit.client.evaluate(&page, &format!("socket('ws://127.0.0.1:{port}/devtools/browser')"))?;
        sockets.insert(told.to_string());
    }
    assert_eq!(sockets, BTreeSet::from(["1006".to_owned()]), "WebSockets");
    for (way, script) in WAYS {
        // What it may reach comes second, so that the other was asked for when it arrives.
        let control = format!("/way?{}", way.replace(' ', "-"));
        let go = |url: String| format!("(url => {{ {script} }})('{url}')");
        for url in [format!("http://127.0.0.1:{open_port}/"), site.url(&control)] {
            visit.client.evaluate(&page, &go(url))?;
        }
        let asked = || site.was_asked(&control).then_some(());
        if until(way, Duration::from_secs(5), asked).is_err() {
            // Of two downloads that a page begins by itself, Chromium may hold back the second one.
            visit.client.open(&page, &site.url("/"))?;
            visit.client.evaluate(&page, &go(site.url(&control)))?;
            until(way, SOON, asked)?;
        }
    }
    let came = open.accept();
    assert!(came.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "{came:?}");
    assert!(!server.log().contains("/json/version"), "the server itself was reached");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

/// What comes back for all these bytes on one connection to the session's way out.
fn through_the_way_out(process: &Process, requests: &[u8]) -> anyhow::Result<String> {
    let mut sent = tempfile::tempfile()?;
    sent.write_all(requests)?;
    sent.rewind()?;
    let script = "exec 3<>/dev/tcp/127.0.0.1/3128 4<&0; cat <&4 >&3 & cat <&3";
    let mut command = Command::new("nsenter");
    command.args(["--target", &process.pid.to_string(), "--net", "--", "/bin/bash", "-c", script]);
    let output = command.stdin(sent).output().context("cannot start nsenter")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn b4_every_port_of_this_machine_gets_the_same_refusal_from_a_sessions_way_out() -> anyhow::Result<()> {
    let Place { server, site } = place();
    let session = server.headless()?;
    let process = first_process(server, &session)?;
    let open = TcpListener::bind("127.0.0.1:0")?;
    open.set_nonblocking(true)?;
    let ports = || (1..=u16::MAX).filter(|port| *port != site.address.port());
    let request = |port: u16| {
        let end = if port == u16::MAX { "Connection: close\r\n" } else { "" };
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{end}\r\n")
    };
    let requests: String = ports().map(request).collect();

    let answers = through_the_way_out(&process, requests.as_bytes())?;

    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for answer in answers.split("HTTP/1.1 ").skip(1) {
        let varies = |line: &&str| line.to_ascii_lowercase().starts_with("date:") || line.starts_with("connection:");
        let lines: Vec<&str> = answer.lines().filter(|line| !varies(line)).collect();
        *kinds.entry(lines.join("\n")).or_default() += 1;
    }
    assert_eq!(kinds.len(), 1, "{kinds:#?}");
    assert_eq!(kinds.into_values().sum::<usize>(), ports().count());
    assert!(open.accept().is_err(), "somebody came");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

/// A number of `/proc/<pid>/status`, as it stands there; none once the process has ended.
fn status(process: &Process, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
    let of = |field| text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    let ended = of("State:").trim().starts_with(['Z', 'X']);
    (!ended).then(|| of(field).trim_start_matches(':').trim().to_owned())
}

#[test]
fn e4_chromiums_own_sandbox_is_on_and_nothing_has_a_capability() -> anyhow::Result<()> {
    let Place { server, site } = place();
    for wish in [json!({ "headless": true }), json!({})] {
        let session = server.create(&wish)?;
        let mut visit = Visit::of(&session, site)?;
        let text = shown(&mut visit, "chrome://sandbox/")?;
        assert!(text.contains("You are adequately sandboxed."), "{text}");
        visit.client.open(&visit.page.clone(), &site.url("/"))?;

        let browser = browser_of(server, &session)?;
        // One that is kept in reserve may have just begun.
        let all = until("Chromium's own filter stands behind the sandbox's in every renderer", SOON, || {
            let all = chromium(server, &browser).ok()?;
            let renderers = all.iter().filter(|process| kind(process) == Some("renderer"));
            let filters: Vec<String> = renderers.filter_map(|one| status(one, "Seccomp_filters")).collect();
            let both = |count: &String| count.parse::<u32>().is_ok_and(|count| count > 1);
            (!filters.is_empty() && filters.iter().all(both)).then_some(all)
        })?;
        let namespace = |process: &Process| fs::read_link(format!("/proc/{}/ns/user", process.pid)).ok();
        let outermost = namespace(&all[0]);
        for process in all.iter().chain(&processes_of(&sandbox(server, &browser))) {
            // Chromium's zygote makes namespaces of its own for what it starts, and may do in them as it likes.
            if namespace(process) == outermost || kind(process) == Some("renderer") {
                let capabilities = status(process, "CapEff");
                assert!(capabilities.is_none_or(|all| all == "0000000000000000"), "{:?}", process.argv);
            }
            assert!(status(process, "NoNewPrivs").is_none_or(|set| set == "1"), "{:?}", process.argv);
            let users = status(process, "Uid").unwrap_or_else(|| "1000".to_owned());
            let root = users.is_empty() || users.split_whitespace().any(|uid| uid == "0");
            assert!(!root, "{:?} runs as root", process.argv);
        }
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}

/// Runs a shell inside a session, as somebody who has taken over the whole browser.
fn inside(process: &Process, script: &str) -> anyhow::Result<String> {
    let target = process.pid.to_string();
    let own = ["--user", "--mount", "--pid", "--net", "--ipc", "--uts", "--setuid", "1000", "--setgid", "1000"];
    let output = Command::new("nsenter")
        .args(["--target", &target])
        .args(own)
        .args(["--", "/bin/sh", "-c", script])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()?;
    ensure!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn e5_whoever_has_taken_over_a_browser_finds_nothing_of_the_host_or_of_another_session() -> anyhow::Result<()> {
    let Place { server, .. } = place();
    let (session, other) = (server.headless()?, server.headless()?);
    let process = first_process(server, &session)?;
    let mut client = Cdp::connect(other.text("cdp_ws_url"))?;
    assert!(client.page().is_ok(), "there is somebody to look for");

    let processes = inside(&process, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")?;
    assert!(processes.contains("/chromium"), "it sees its own: {processes}");
    for other in [" serve --listen", "postgres:", &browser_of(server, &other)?] {
        assert!(!processes.contains(other), "it sees others: {processes}");
    }
    let places = "ls -d /tmp/casement-e2e-* /run/casement-* /var/run/docker.sock /root /var/lib 2>/dev/null; true";
    assert_eq!(inside(&process, places)?, "");
    assert_eq!(inside(&process, "sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d ' '")?, "lo", "no network but its own");
    let secrets = "for file in /etc/shadow /etc/ssh /root /proc/sysrq-trigger /dev/mem /dev/sda; do
        { cat $file || ls $file; } >/dev/null 2>&1 && echo $file; done; true";
    assert_eq!(inside(&process, secrets)?, "");
    let environment =
        inside(&process, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | cut -d= -f1 | sort -u; true")?;
    for name in ["CASEMENT", "CARGO", "DATABASE", "PGPASS", "SUDO", "SSH"] {
        assert!(!environment.contains(name), "{environment}");
    }
    let writable = "for dir in / /usr /etc /bin /run/casement /run/casement/egress /dev /proc/sys; do
        (: > $dir/canary) 2>/dev/null && echo $dir; done; true";
    assert_eq!(inside(&process, writable)?, "", "nothing of the system can be changed");
    let mounts = inside(&process, "cat /proc/self/mountinfo")?;
    for elsewhere in [browser_of(server, &other)?, "/postgres".to_owned(), "docker".to_owned()] {
        assert!(!mounts.contains(&elsewhere), "{mounts}");
    }
    for session in [session, other] {
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}
