//! Tests of profiles: the next session has the login of an earlier one, also after kills and failures.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Options, Pages, Server, Session, Shared, processes_of, until};
use serde_json::{Value, json};

use super::bad_database::SmallDisk;
use super::host::{browser_of, sandbox, sql};

const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// A page that creates all kinds of stored state, and reports which are present.
const SITE: &str = r"<!doctype html><title>A site</title><script>
const done = request => new Promise((good, bad) => { request.onsuccess = () => good(request.result); request.onerror = bad; });
const database = () => {
    const open = indexedDB.open('kept', 1);
    open.onupgradeneeded = () => open.result.createObjectStore('store');
    return done(open);
};
window.make = async what => {
    document.cookie = `stays=${what}; max-age=9999`;
    localStorage.kept = what;
    const transaction = (await database()).transaction('store', 'readwrite');
    transaction.objectStore('store').put(what, 'key');
    await new Promise(good => { transaction.oncomplete = good; });
    await navigator.serviceWorker.register('/profiles/worker.js');
    await navigator.serviceWorker.ready;
};
window.fill = async megabytes => {
    const store = (await database()).transaction('store', 'readwrite').objectStore('store');
    for (let n = 0; n < megabytes * 16; n++) {
        await done(store.put(crypto.getRandomValues(new Uint8Array(65536)), n));
    }
};
window.look = async () => {
    const registered = await navigator.serviceWorker.getRegistration('/profiles/');
    const worker = registered ? await (await fetch('/profiles/from-worker')).text() : null;
    return {
        cookie: document.cookie,
        stored: localStorage.kept ?? null,
        indexed: await done((await database()).transaction('store').objectStore('store').get('key')) ?? null,
        worker,
        notifications: Notification.permission,
    };
};
</script>";

const WORKER: &str =
    "onfetch = e => { if (e.request.url.endsWith('/from-worker')) e.respondWith(new Response('the worker')); };";

fn put_site(pages: &Pages) {
    let html = "Content-Type: text/html; charset=utf-8";
    pages.put_as("/profiles/login", &format!("{html}\r\nSet-Cookie: ends=with the browser; HttpOnly; Path=/"), SITE);
    pages.put_as("/profiles/", html, SITE);
    pages.put_as("/profiles/worker.js", "Content-Type: text/javascript", WORKER);
}

/// Returns the shared server, whose browsers reach the site.
fn shared() -> &'static Shared {
    static SITE_IS_THERE: Once = Once::new();
    let shared = Shared::get();
    SITE_IS_THERE.call_once(|| put_site(&shared.pages));
    shared
}

fn new_profile(server: &Server, name: &str) -> anyhow::Result<()> {
    server.post("/profiles", &json!({ "name": name }))?.expect(201).map(drop)
}

fn with(server: &Server, name: &str, headless: bool, save_changes: bool) -> anyhow::Result<Session> {
    let profile = json!({ "name": name, "save_changes": save_changes });
    server.create(&json!({ "headless": headless, "timeout_seconds": 600, "profile": profile }))
}

fn end(server: &Server, session: &Session) -> anyhow::Result<()> {
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

/// Logs in as `what`, and grants a permission in the settings of the browser.
fn log_in(session: &Session, pages: &Pages, what: &str) -> anyhow::Result<()> {
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, "chrome://settings/content")?;
    let grant = format!("chrome.send('setOriginPermissions', ['{}', 'notifications', 'allow'])", pages.url(""));
    cdp.evaluate(&page, &grant)?;
    cdp.open(&page, &pages.url("/profiles/login"))?;
    cdp.evaluate(&page, &format!("make('{what}')"))?;
    let granted = "new Promise(done => { const look = () => Notification.permission == 'granted' ? done(true) : setTimeout(look, 20); look() })";
    ensure!(cdp.evaluate(&page, granted)? == true);
    Ok(())
}

/// Returns the state of the site in the session.
fn seen(session: &Session, pages: &Pages) -> anyhow::Result<Value> {
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/profiles/"))?;
    let mut seen = cdp.evaluate(&page, "look()")?;
    let cookies = cdp.call("Storage.getCookies", &json!({}))?["cookies"].clone();
    let ends = cookies.as_array().into_iter().flatten().find(|cookie| cookie["name"] == "ends");
    seen["ends"] = ends.map_or(Value::Null, |cookie| json!([cookie["value"], cookie["session"]]));
    Ok(seen)
}

/// Returns the complete state after a login as `what`.
fn whole(what: &str) -> Value {
    json!({
        "cookie": format!("stays={what}"), "stored": what, "indexed": what, "worker": "the worker",
        "notifications": "granted", "ends": ["with the browser", true],
    })
}

fn a_login_is_there_in_the_next_session(headless: bool) -> anyhow::Result<()> {
    let Shared { server, pages } = shared();
    let name = format!("login-{headless}");
    new_profile(server, &name)?;
    let session = with(server, &name, headless, true)?;
    log_in(&session, pages, "ann")?;
    end(server, &session)?;
    for headless in [true, false] {
        let session = with(server, &name, headless, false)?;
        assert_eq!(seen(&session, pages)?, whole("ann"), "then headless {headless}");
        // A session without `save_changes` saves nothing.
        let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = cdp.page()?;
        cdp.evaluate(&page, "make('bob')")?;
        end(server, &session)?;
    }
    server.delete(&format!("/profiles/{name}"))?.expect(204)?;
    Ok(())
}

#[test]
fn a_login_without_a_display_is_there_in_the_next_session() -> anyhow::Result<()> {
    a_login_is_there_in_the_next_session(true)
}

#[test]
fn a_login_with_a_display_is_there_in_the_next_session() -> anyhow::Result<()> {
    a_login_is_there_in_the_next_session(false)
}

#[test]
fn a_running_session_can_load_a_profile_and_a_pool_can_have_one() -> anyhow::Result<()> {
    let Shared { server, pages } = shared();
    new_profile(server, "living")?;
    let first = with(server, "living", true, true)?;
    log_in(&first, pages, "ann")?;
    end(server, &first)?;

    let session = server.headless()?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/profiles/"))?;
    cdp.evaluate(&page, "make('nobody')")?;
    let path = format!("/browsers/{}", session.id());
    let body = json!({ "profile": { "name": "living", "save_changes": true } });
    let loaded = server.send("PATCH", &path, Some(&body))?.expect(200)?.json()?;
    assert_eq!(loaded["profile"]["name"], "living");
    assert_eq!(cdp.until_closed()?.map(|(code, _)| code), Some(4004));
    assert_eq!(seen(&session, pages)?, whole("ann"));
    assert_eq!(server.send("PATCH", &path, Some(&body))?.expect(409)?.json()?["code"], "invalid_state");
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.evaluate(&page, "make('carol')")?;
    end(server, &session)?;

    let pool = json!({ "name": "with-profile", "size": 1, "headless": true, "profile": { "name": "living" } });
    server.post("/browser_pools", &pool)?.expect(201)?;
    let session = server.acquire("with-profile")?;
    assert_eq!(seen(&session, pages)?, whole("carol"));
    end(server, &session)?;
    server.send("DELETE", "/browser_pools/with-profile", Some(&json!({ "force": true })))?.expect(204)?;
    server.delete("/profiles/living")?.expect(204)?;
    Ok(())
}

#[test]
fn the_last_to_end_of_two_sessions_with_one_profile_wins() -> anyhow::Result<()> {
    let Shared { server, pages } = shared();
    new_profile(server, "two")?;
    let sessions = [with(server, "two", true, true)?, with(server, "two", true, true)?];
    for (session, what) in sessions.iter().zip(["ann", "bob"]) {
        log_in(session, pages, what)?;
    }
    let path = format!("/browsers/{}", sessions[0].id());
    server.send("PATCH", &path, Some(&json!({ "telemetry": { "enabled": true } })))?.expect(200)?;
    // The session that logged in last ends first.
    for session in sessions.iter().rev() {
        end(server, session)?;
    }
    let next = with(server, "two", true, false)?;
    assert_eq!(seen(&next, pages)?, whole("ann"));
    end(server, &next)?;
    // The replacement of a version that the session had not loaded is reported after the end of the session.
    let profile = server.get("/profiles/two")?.json()?["id"].clone();
    let reported = until("it is told", TEST_TIMEOUT, || {
        let events = server.get(&format!("{path}/telemetry/events?category=system")).ok()?.json().ok()?;
        let reported = events.as_array()?.iter().find(|one| one["event"]["type"] == "profile_version_replaced");
        reported.map(|one| one["event"]["data"].clone())
    })?;
    assert_eq!(reported["profile_id"], profile);
    assert!(
        reported["replaced_version_id"].is_string() && reported["version_id"] != reported["replaced_version_id"],
        "{reported}"
    );
    server.delete("/profiles/two")?.expect(204)?;
    Ok(())
}

/// Returns the names in the download of a profile, read by tar, and the cookies, read by SQLite.
fn read_by_others(download: &[u8]) -> anyhow::Result<Value> {
    const SCRIPT: &str = r"
import io, json, sqlite3, sys, tarfile, tempfile
with tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read())) as archive, tempfile.TemporaryDirectory() as place:
    names = archive.getnames()
    kinds = sorted({'file' if entry.isreg() else 'directory' if entry.isdir() else 'other' for entry in archive})
    archive.extractall(place)
    cookies = sqlite3.connect(place + '/Default/Cookies').execute('select name, is_persistent from cookies order by name')
    print(json.dumps({'kinds': kinds, 'cookies': list(cookies), 'names': names}))
";
    let plain = zstd::decode_all(download)?;
    let mut python = Command::new("python3")
        .args(["-W", "ignore", "-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start python3")?;
    let mut input = python.stdin.take().context("no input")?;
    let writing = thread::spawn(move || input.write_all(&plain));
    let done = python.wait_with_output()?;
    writing.join().expect("it does not panic")?;
    Ok(serde_json::from_slice(&done.stdout)?)
}

#[test]
fn a_downloaded_profile_is_a_standard_archive() -> anyhow::Result<()> {
    let Shared { server, pages } = shared();
    new_profile(server, "taken-away")?;
    let empty = server.get("/profiles/taken-away/download")?.expect(200)?;
    let nothing = zstd::decode_all(&empty.body[..])?;
    assert!(nothing.len() >= 1024 && nothing.iter().all(|byte| *byte == 0), "the archive of nothing");
    let session = with(server, "taken-away", true, true)?;
    log_in(&session, pages, "ann")?;
    end(server, &session)?;
    let download = server.get("/profiles/taken-away/download")?.expect(200)?;
    assert_eq!(download.header("content-type"), Some("application/octet-stream"));
    let disposition = download.header("content-disposition").unwrap_or_default();
    assert!(disposition.contains("taken-away.tar.zst"), "{disposition}");
    let found = read_by_others(&download.body)?;
    assert_eq!(found["kinds"], json!(["directory", "file"]));
    assert_eq!(found["cookies"], json!([["ends", 0], ["stays", 1]]));
    let names = found["names"].to_string();
    assert!(!names.contains("Default/Cache") && !names.contains("Singleton"), "{names}");
    server.delete("/profiles/taken-away")?.expect(204)?;
    Ok(())
}

/// Returns the files of the stored versions.
fn stored_files(server: &Server) -> Vec<PathBuf> {
    let mut folders = vec![server.data_dir().join("blobs")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.ends_with("store-id") => {}
                path => files.push(path),
            }
        }
    }
    files
}

#[test]
fn a_server_killed_during_a_save_finishes_it_or_keeps_the_old_version() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    put_site(&pages);
    let mut server = Server::start(Options::reaching(&pages))?;
    new_profile(&server, "survivor")?;
    let session = with(&server, "survivor", true, true)?;
    log_in(&session, &pages, "ann")?;
    // Makes the profile large enough for a slow save.
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.evaluate(&page, "fill(8)")?;
    end(&server, &session)?;
    let mut before = "ann".to_owned();

    for moment in ["it is stored that the session ended", "Chromium is closed", "bytes are kept"] {
        let session = with(&server, "survivor", true, true)?;
        let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = cdp.page()?;
        cdp.open(&page, &pages.url("/profiles/"))?;
        let after = format!("{before}+");
        cdp.evaluate(&page, &format!("make('{after}')"))?;
        let place = sandbox(&server, &browser_of(&server, &session)?);
        let (old, path) = (stored_files(&server), format!("/browsers/{}", session.id()));
        let delete = Request::new("DELETE", &path).bearer(server.key());
        let address = server.address();
        let ending = thread::spawn(move || delete.send(address));
        until(moment, TEST_TIMEOUT, || {
            let is_it = match moment {
                "it is stored that the session ended" => {
                    sql(&server, "select count(*) from sessions where state = 'active'").ok()? == "0"
                }
                "Chromium is closed" => !processes_of(&place)
                    .iter()
                    .any(|process| process.argv.first().is_some_and(|word| word.contains("/chromium"))),
                _ => stored_files(&server).iter().any(|file| !old.contains(file)),
            };
            is_it.then_some(())
        })?;
        server.kill()?;
        drop(ending.join().expect("it does not panic"));
        server.restart()?;
        // The killed server may have stored the end of the session or not; the restarted one has.
        let status = server.get(&path)?.status;
        assert_eq!(status, 404, "{moment}");
        until(&format!("what was left is saved, killed when {moment}"), TEST_TIMEOUT, || {
            let waiting = sql(&server, "select count(*) from browsers where state = 'ending'").ok()?;
            (waiting == "0").then_some(())
        })?;
        let next = with(&server, "survivor", true, false)?;
        assert_eq!(seen(&next, &pages)?, whole(&after), "killed when {moment}");
        end(&server, &next)?;
        before = after;
    }
    Ok(())
}

#[test]
fn a_profile_with_cut_or_altered_bytes_is_refused_by_name_and_leaves_no_session() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    put_site(&pages);
    let server = Server::start(Options::reaching(&pages))?;
    new_profile(&server, "damaged")?;
    let session = with(&server, "damaged", true, true)?;
    log_in(&session, &pages, "ann")?;
    end(&server, &session)?;
    let files = stored_files(&server);
    ensure!(files.len() == 1, "{files:?}");
    let whole_file = fs::read(&files[0])?;
    let altered = |at: usize| {
        let mut bytes = whole_file.clone();
        bytes[at] ^= 1;
        bytes
    };
    let length = whole_file.len();
    for (what, bytes) in [
        ("cut", whole_file[..length / 2].to_vec()),
        ("cut at its end", whole_file[..length - 1].to_vec()),
        ("altered", altered(length / 2)),
        ("altered at its beginning", altered(0)),
        ("nothing", Vec::new()),
        ("longer", [&whole_file[..], b"more"].concat()),
    ] {
        fs::write(&files[0], &bytes)?;
        let body = json!({ "headless": true, "profile": { "name": "damaged" } });
        let refused = server.post("/browsers", &body)?;
        ensure!(refused.status >= 400, "{what}: {}", refused.status);
        ensure!(refused.text().contains("profile"), "{what}: {}", refused.text());
        let download = server.get("/profiles/damaged/download");
        ensure!(!download.is_ok_and(|answer| answer.status == 200), "{what}: it was handed out");
        assert_eq!(server.get("/browsers")?.json()?, json!([]), "{what}");
    }
    fs::write(&files[0], &whole_file)?;
    let session = with(&server, "damaged", true, false)?;
    assert_eq!(seen(&session, &pages)?, whole("ann"));
    end(&server, &session)?;
    Ok(())
}

#[test]
fn a_save_without_disk_space_keeps_the_old_version_and_succeeds_later() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    put_site(&pages);
    let server = Server::start(Options::reaching(&pages))?;
    let disk = SmallDisk::mount(server.data_dir().join("blobs"))?;
    new_profile(&server, "crowded")?;
    let session = with(&server, "crowded", true, true)?;
    log_in(&session, &pages, "ann")?;
    end(&server, &session)?;
    let session = with(&server, "crowded", true, true)?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/profiles/"))?;
    cdp.evaluate(&page, "make('bob').then(() => fill(4))")?;

    let filler = disk.fill()?;
    let before = stored_files(&server);
    end(&server, &session)?;
    let reported = until("it is told of", TEST_TIMEOUT, || {
        let log = server.log();
        log.lines().find(|line| line.contains("cannot save a session's profile")).map(str::to_owned)
    })?;
    assert!(reported.contains(session.id()) && reported.contains("No space left"), "{reported}");
    until("nothing is left of the try", TEST_TIMEOUT, || (stored_files(&server) == before).then_some(()))?;
    let next = with(&server, "crowded", true, false)?;
    assert_eq!(seen(&next, &pages)?, whole("ann"));
    end(&server, &next)?;
    assert_eq!(server.get("/browsers")?.json()?, json!([]), "it has ended all the same");

    fs::remove_file(filler)?;
    until("it is saved", TEST_TIMEOUT, || {
        let waiting = sql(&server, "select count(*) from browsers where state = 'ending'").ok()?;
        (waiting == "0").then_some(())
    })?;
    let next = with(&server, "crowded", true, false)?;
    assert_eq!(seen(&next, &pages)?, whole("bob"));
    end(&server, &next)?;
    drop(disk);
    Ok(())
}

#[test]
fn a_stop_that_ends_the_sessions_saves_all_of_their_profiles() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    put_site(&pages);
    let mut server = Server::start(Options { spares: 0, ..Options::reaching(&pages) })?;
    let names = ["first", "second", "third"];
    for name in names {
        new_profile(&server, name)?;
        log_in(&with(&server, name, true, true)?, &pages, name)?;
    }
    ensure!(server.stop_all()?.success(), "it does not end well");
    server.restart()?;
    assert_eq!(sql(&server, "select count(*) from sessions where state <> 'ended'")?, "0");
    for name in names {
        let session = with(&server, name, true, false)?;
        let seen = seen(&session, &pages)?;
        assert_eq!(seen["stored"], name, "{seen}");
        end(&server, &session)?;
    }
    Ok(())
}
