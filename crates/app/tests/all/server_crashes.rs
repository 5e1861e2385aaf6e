//! Tests with a server that is killed, terminated or loses its machine: sessions and pools continue, and nothing
//! incomplete is left.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Options, Pages, Process, Server, processes_of, remains_of, until};
use rustix::process::Signal;
use serde_json::json;

use super::host::{
    all_of, browser_of, chromium, control_groups_named, count, create_pool, end_reason, id_of, idle_browsers, page_at,
    remains_of_sandbox, sandbox, sandboxes, server_process, sql, until_count, until_ended_well, uuid,
};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_killed_server_resumes_its_sessions_pools_and_idle_timeouts_and_cleans_up() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options { spares: 1, ..Options::reaching(&pages) })?;
    create_pool(&server, "kept", 1)?;
    let used = server.headless()?;
    let mut client = Cdp::connect(used.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.open(&page, &pages.url("/form"))?;
    client.evaluate(&page, "window.mark = 42")?;
    client.call("Target.createTarget", &json!({ "url": pages.url("/green") }))?;
    server.until_available("kept", 1)?;
    let idle = idle_browsers(&server, "kept")?;
    // Created late, so that its idle timeout does not end before the restart.
    let left_alone = server.create(&json!({ "headless": true, "timeout_seconds": 150 }))?;
    let created = Instant::now();
    let mut remaining = vec![browser_of(&server, &used)?, browser_of(&server, &left_alone)?, idle[0].clone()];
    remaining.sort_unstable();

    // Waits long enough to detect an idle timeout that begins again after the restart.
    until("the idle clock has run on", TEST_TIMEOUT, || (created.elapsed() > Duration::from_secs(20)).then_some(()))?;

    // A create and the filling of a pool are running when the server is killed: their browsers are stopped until then.
    let known = sandboxes(&server)?;
    let mut held = Vec::new();
    create_pool(&server, "half", 2)?;
    let (address, key) = (server.address(), server.key().to_owned());
    let create = thread::spawn(move || {
        let shape = json!({ "headless": true, "viewport": { "width": 801, "height": 600 } });
        Request::new("POST", "/browsers").bearer(&key).json(&shape).send(address)
    });
    until("the browsers of the create and of the pool have begun", TEST_TIMEOUT, || {
        hold(&server, &known, &mut held);
        (held.iter().any(is_of_the_create) && held.iter().filter(|one| !is_of_the_create(one)).count() >= 2)
            .then_some(())
    })?;
    until("both are stored as under way", TEST_TIMEOUT, || {
        hold(&server, &known, &mut held);
        let starting = count(&server, "select count(*) from sessions where state = 'starting'").ok()?;
        let warming = count(&server, "select count(*) from browsers where state = 'warming'").ok()?;
        (starting == 1 && warming > 0).then_some(())
    })?;
    let (address, key) = (server.address(), server.key().to_owned());
    let waiting = thread::spawn(move || {
        Request::new("POST", "/browser_pools/half/acquire").bearer(&key).json(&json!({})).send(address)
    });
    until_count(&server, "select count(*) from pool_waiters", |found| found == 1)?;
    let before = sandboxes(&server)?;
    server.kill()?;
    for process in &held {
        // A process that has ended in the meantime needs no signal.
        drop(server.signal(process, Signal::CONT));
    }
    let lost = create.join().unwrap();
    assert!(lost.is_err(), "the create was answered before the server died: {lost:?}");
    assert!(waiting.join().unwrap().is_err(), "the acquire was answered before the server died");
    ensure!(client.until_closed()?.is_none(), "a killed server says no word");
    server.restart()?;
    let restarted = created.elapsed();

    let mut survived: Vec<String> = sandboxes(&server)?;
    survived.retain(|id| before.contains(id));
    assert_eq!(survived, remaining, "of {before:?}");
    for gone in before.iter().filter(|id| !remaining.contains(id)) {
        let left = processes_of(&sandbox(&server, gone));
        assert!(left.is_empty(), "{gone}: {left:#?}");
    }
    assert_eq!(sql(&server, "select count(*) from sessions where state = 'starting'")?, "0");
    assert_eq!(sql(&server, "select count(*) from pool_waiters")?, "0", "nobody waits in the line any more");
    assert_eq!(sql(&server, "select count(*) from sessions where state = 'active'")?, "2", "and nobody was given one");
    let mut client = Cdp::connect(used.text("cdp_ws_url"))?;
    let targets = until("the second tab shows its page", TEST_TIMEOUT, || {
        page_at(&mut client, &pages.url("/green")).ok()?;
        client.call("Target.getTargets", &json!({})).ok()
    })?;
    let mut tabs: Vec<&str> = targets["targetInfos"]
        .as_array()
        .context("no targets")?
        .iter()
        .filter(|target| target["type"] == "page")
        .filter_map(|target| target["url"].as_str())
        .collect();
    tabs.sort_unstable();
    assert_eq!(tabs, [pages.url("/form"), pages.url("/green")]);
    let form = page_at(&mut client, &pages.url("/form"))?;
    assert_eq!(client.evaluate(&form, "window.mark")?, 42, "the same page as before, not a fresh one");

    let taken = server.acquire("kept")?;
    assert_eq!(browser_of(&server, &taken)?, idle[0], "the browser that was idle is handed out");
    until("the session that nobody used ends", Duration::from_secs(600), || {
        (end_reason(&server, left_alone.id()).ok()? == "idle_timeout").then_some(())
    })?;
    let lived = "select extract(epoch from ended_at - last_active_at) from sessions";
    let lived: f64 = sql(&server, &format!("{lived} where id = '{}'", uuid(left_alone.id())?))?.parse()?;
    let anew = restarted.as_secs_f64() + 150.0;
    assert!((150.0..anew).contains(&lived), "it took {lived} s: beginning anew at the restart it would be {anew} s");
    assert_eq!(server.get(&format!("/browsers/{}", left_alone.id()))?.status, 404);
    Ok(())
}

/// Stops each browser of a sandbox that is not in `known` with SIGSTOP, before its start is complete.
fn hold(server: &Server, known: &[String], held: &mut Vec<Process>) {
    for sandbox in sandboxes(server).unwrap_or_default().iter().filter(|id| !known.contains(id)) {
        let Some(browser) = chromium(server, sandbox).ok().and_then(|all| all.into_iter().next()) else { continue };
        if !held.iter().any(|one| one.pid == browser.pid) && server.signal(&browser, Signal::STOP).is_ok() {
            held.push(browser);
        }
    }
}

/// Returns true if a browser is that of the create, not of the pool.
fn is_of_the_create(browser: &Process) -> bool {
    browser.argv.join(" ").contains("--window-size=801,")
}

#[test]
fn a_terminated_server_closes_its_connections_and_leaves_the_sessions_running() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    create_pool(&server, "small", 1)?;
    let held = server.acquire("small")?;
    let mut client = Cdp::connect(held.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.evaluate(&page, "window.mark = 7")?;
    let (address, key) = (server.address(), server.key().to_owned());
    let waiting = thread::spawn(move || {
        Request::new("POST", "/browser_pools/small/acquire").bearer(&key).json(&json!({})).send(address)
    });
    until_count(&server, "select count(*) from pool_waiters", |found| found == 1)?;

    let first = server_process(&server)?;
    server.signal(&first, Signal::TERM)?;

    assert_eq!(client.until_closed()?, Some((1012, "drain".to_owned())));
    assert_eq!(waiting.join().unwrap()?.status, 204, "who waits is told to come again");
    until_ended_well(&mut server, &first)?;
    let left = server.processes();
    assert!(!left.iter().any(|process| process.argv.iter().any(|word| word.contains("postgres"))), "{left:#?}");
    server.restart()?;
    let mut client = Cdp::connect(held.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "window.mark")?, 7);

    let browser = browser_of(&server, &held)?;
    let places = [sandbox(&server, &browser)];
    let second = server_process(&server)?;
    let mut stopping = server.command(&["stop", "--end-sessions"]);
    assert!(stopping.status()?.success());
    until_ended_well(&mut server, &second)?;
    let root = server.data_dir().parent().context("no parent")?.to_owned();
    let mut left = Vec::new();
    until("nothing of it is left", TEST_TIMEOUT, || {
        left = remains_of(&root);
        left.extend(places.iter().filter(|place| place.exists()).map(|place| format!("{}", place.display())));
        left.extend(control_groups_named(&browser));
        left.is_empty().then_some(())
    })
    .with_context(|| format!("{left:#?}"))
}

#[test]
fn a_reboot_ends_all_sessions_refills_the_pools_and_leaves_nothing_behind() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options::reaching(&pages))?;
    create_pool(&server, "rebooted", 1)?;
    let session = server.headless()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    client.page()?;
    server.until_available("rebooted", 1)?;
    let before = sandboxes(&server)?;
    assert_eq!(before.len(), 2, "the session's and the pool's");
    let ran: Vec<Process> = before.iter().flat_map(|id| all_of(&server, id)).collect();

    lose_power(&mut server)?;
    ensure!(client.until_closed()?.is_none(), "a machine without power says no word");
    server.restart()?;

    let path = format!("/browsers/{}", session.id());
    until("the session has ended", TEST_TIMEOUT, || (server.get(&path).ok()?.status == 404).then_some(()))?;
    assert_eq!(end_reason(&server, session.id())?, "crashed");
    let refused = Cdp::connect(session.text("cdp_ws_url")).err().context("the dead session took a connection")?;
    assert!(refused.to_string().contains("404"), "{refused}");
    assert_eq!(server.get("/browsers")?.expect(200)?.json()?, json!([]));
    assert_eq!(sql(&server, "select count(*) from sessions where state <> 'ended'")?, "0", "no session goes on");
    until("the database has forgotten the dead browsers", TEST_TIMEOUT, || {
        known_browsers(&server).ok()?.iter().all(|id| !before.contains(id)).then_some(())
    })?;
    let mut left: Vec<String> = Vec::new();
    until("nothing of what ran is left", TEST_TIMEOUT, || {
        left = before.iter().flat_map(|id| remains_of_sandbox(&server, id)).collect();
        left.extend(ran.iter().filter(|process| still_runs(process)).map(|process| format!("{process:?}")));
        left.is_empty().then_some(())
    })
    .with_context(|| format!("{left:#?}"))?;

    let next = server.acquire("rebooted")?;
    let browser = browser_of(&server, &next)?;
    let mut client = Cdp::connect(next.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.open(&page, &pages.url("/green"))?;
    assert_eq!(client.evaluate(&page, "document.title")?, "Green");
    // The browser is new, because the database has none of the former ones.
    assert_eq!(known_browsers(&server)?, [browser.as_str()], "what the database claims is what there is");
    assert_eq!(sandboxes(&server)?, [browser]);
    Ok(())
}

/// Kills the server, its database and its sandboxes at once, like a loss of power. Files in `/run` stay, like after a
/// restart of a container.
fn lose_power(server: &mut Server) -> anyhow::Result<()> {
    server.kill()?;
    until("nothing runs any more", TEST_TIMEOUT, || {
        let running = server.processes();
        for process in &running {
            // A process that has ended in the meantime needs no signal.
            drop(server.signal(process, Signal::KILL));
        }
        running.is_empty().then_some(())
    })
}

/// Returns the ids of the browsers in the database.
fn known_browsers(server: &Server) -> anyhow::Result<Vec<String>> {
    sql(server, "select id from browsers order by created_at")?.lines().map(id_of).collect()
}

/// Returns true if the process still runs; another process with the same pid does not count.
fn still_runs(process: &Process) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    // A zombie has no command line.
    !line.is_empty() && process.argv.iter().all(|word| line.contains(word.as_str()))
}
