//! Something dies at a bad moment: the server, a browser, PostgreSQL. What must outlive it does, and nothing else.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_postgres::{Cluster, ClusterConfig};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, geteuid};
use serde_json::json;
use tokio::runtime::Runtime;
use ulid::Ulid;

use super::bad_database::{SmallDisk, Way};
use super::host::{
    all_of, browser_of, chromium, count, end_reason, id_of, idle_browsers, kind, page_at, sandbox, sandboxes,
    server_process, sql, until_ended_well, uuid,
};
use super::support::http::{Answer, Request};
use super::support::{
    Cdp, Options, Pages, Process, Server, Session, Shared, png_size, processes_of, remains_of, until,
};

const SOON: Duration = Duration::from_secs(60);

fn pool(server: &Server, name: &str, size: u32) -> anyhow::Result<()> {
    let wish = json!({ "name": name, "size": size, "headless": true });
    server.post("/browser_pools", &wish)?.expect(201).map(drop)
}

/// Until the database says so many.
fn until_count(server: &Server, statement: &str, wanted: impl Fn(u64) -> bool) -> anyhow::Result<()> {
    until(statement, SOON, || count(server, statement).ok().filter(|found| wanted(*found)).map(drop))
}

#[test]
fn a_killed_server_comes_back_to_its_sessions_pools_and_idle_clocks_and_clears_away_what_was_half_made()
-> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options { spares: 1, ..Options::reaching(&pages) })?;
    pool(&server, "kept", 1)?;
    let used = server.headless()?;
    let mut client = Cdp::connect(used.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.open(&page, &pages.url("/form"))?;
    client.evaluate(&page, "window.mark = 42")?;
    client.call("Target.createTarget", &json!({ "url": pages.url("/green") }))?;
    server.until_available("kept", 1)?;
    let idle = idle_browsers(&server, "kept")?;
    // Late, so that its time is not over before the server is back.
    let left_alone = server.create(&json!({ "headless": true, "timeout_seconds": 150 }))?;
    let created = Instant::now();
    let mut kept = vec![browser_of(&server, &used)?, browser_of(&server, &left_alone)?, idle[0].clone()];
    kept.sort_unstable();

    // Long enough that a clock which begins anew would show.
    until("the idle clock has run on", SOON, || (created.elapsed() > Duration::from_secs(20)).then_some(()))?;

    // A create and the filling of a pool are under way when the server dies: their browsers do not get on until then.
    let known = sandboxes(&server)?;
    let mut held = Vec::new();
    pool(&server, "half", 2)?;
    let (address, key) = (server.address(), server.key().to_owned());
    let create = thread::spawn(move || {
        let shape = json!({ "headless": true, "viewport": { "width": 801, "height": 600 } });
        Request::new("POST", "/browsers").bearer(&key).json(&shape).send(address)
    });
    until("the browsers of the create and of the pool have begun", SOON, || {
        hold(&server, &known, &mut held);
        (held.iter().any(is_of_the_create) && held.iter().filter(|one| !is_of_the_create(one)).count() >= 2)
            .then_some(())
    })?;
    until("both are stored as under way", SOON, || {
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
        // One that has ended meanwhile needs it no more.
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
    assert_eq!(survived, kept, "of {before:?}");
    for gone in before.iter().filter(|id| !kept.contains(id)) {
        let left = processes_of(&sandbox(&server, gone));
        assert!(left.is_empty(), "{gone}: {left:#?}");
    }
    assert_eq!(sql(&server, "select count(*) from sessions where state = 'starting'")?, "0");
    assert_eq!(sql(&server, "select count(*) from pool_waiters")?, "0", "nobody waits in the line any more");
    assert_eq!(sql(&server, "select count(*) from sessions where state = 'active'")?, "2", "and nobody was given one");
    let mut client = Cdp::connect(used.text("cdp_ws_url"))?;
    let targets = until("the second tab shows its page", SOON, || {
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

/// Stops each browser that begins in another sandbox than these. A start takes longer than to see it, and none gets to its end then.
fn hold(server: &Server, known: &[String], held: &mut Vec<Process>) {
    for sandbox in sandboxes(server).unwrap_or_default().iter().filter(|id| !known.contains(id)) {
        let Some(browser) = chromium(server, sandbox).ok().and_then(|all| all.into_iter().next()) else { continue };
        if !held.iter().any(|one| one.pid == browser.pid) && server.signal(&browser, Signal::STOP).is_ok() {
            held.push(browser);
        }
    }
}

/// Whether a browser is the one that the test asks for beside the pool's.
fn is_of_the_create(browser: &Process) -> bool {
    browser.argv.join(" ").contains("--window-size=801,")
}

#[test]
fn a_server_that_is_terminated_tells_its_clients_and_leaves_their_sessions() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    pool(&server, "small", 1)?;
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
    until("nothing of it is left", SOON, || {
        left = remains_of(&root);
        left.extend(places.iter().filter(|place| place.exists()).map(|place| format!("{}", place.display())));
        left.extend(control_groups_named(&browser));
        left.extend(claims_below(&server.data_dir()));
        left.is_empty().then_some(())
    })
    .with_context(|| format!("{left:#?}"))
}

/// The users of this machine that are still set aside for sandboxes at or below a directory.
fn claims_below(dir: &Path) -> Vec<String> {
    let claims = fs::read_dir("/run/casement/uids").into_iter().flatten().flatten();
    let is_below =
        |claim: &fs::DirEntry| fs::read_to_string(claim.path()).is_ok_and(|of| Path::new(&of).starts_with(dir));
    claims.filter(is_below).map(|claim| format!("the claim {claim:?}")).collect()
}

fn control_groups_named(browser: &str) -> Vec<String> {
    let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let ours = controllers.map(|entry| entry.path().join("casement")).chain(["/sys/fs/cgroup/casement".into()]);
    let groups = ours.filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    groups.map(|entry| entry.path().display().to_string()).filter(|path| path.contains(browser)).collect()
}

#[test]
fn i3_a_reboot_ends_what_ran_its_pools_fill_again_and_nothing_of_the_past_is_left_or_claimed() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options::reaching(&pages))?;
    pool(&server, "rebooted", 1)?;
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
    until("the session has ended", SOON, || (server.get(&path).ok()?.status == 404).then_some(()))?;
    assert_eq!(end_reason(&server, session.id())?, "crashed");
    let refused = Cdp::connect(session.text("cdp_ws_url")).err().context("the dead session took a connection")?;
    assert!(refused.to_string().contains("404"), "{refused}");
    assert_eq!(server.get("/browsers")?.expect(200)?.json()?, json!([]));
    assert_eq!(sql(&server, "select count(*) from sessions where state <> 'ended'")?, "0", "no session goes on");
    until("the database has forgotten the dead browsers", SOON, || {
        known_browsers(&server).ok()?.iter().all(|id| !before.contains(id)).then_some(())
    })?;
    let mut left: Vec<String> = Vec::new();
    until("nothing of what ran is left", SOON, || {
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
    // Made since, as none of the former ones is known any more.
    assert_eq!(known_browsers(&server)?, [browser.as_str()], "what the database claims is what there is");
    assert_eq!(sandboxes(&server)?, [browser]);
    Ok(())
}

/// Ends all that runs on the server's machine at once, as a loss of power does: the server, its database, its sandboxes. What lies in
/// `/run` stays, as it does where only a container is started anew.
fn lose_power(server: &mut Server) -> anyhow::Result<()> {
    server.kill()?;
    until("nothing runs any more", SOON, || {
        let running = server.processes();
        for process in &running {
            // One that has ended meanwhile needs it no more.
            drop(server.signal(process, Signal::KILL));
        }
        running.is_empty().then_some(())
    })
}

/// The browsers that the database knows of.
fn known_browsers(server: &Server) -> anyhow::Result<Vec<String>> {
    sql(server, "select id from browsers order by created_at")?.lines().map(id_of).collect()
}

/// Whether that process is still there, and not another with its number.
fn still_runs(process: &Process) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    // One that has ended and is waited for has no command line.
    !line.is_empty() && process.argv.iter().all(|word| line.contains(word.as_str()))
}

/// What is left of a sandbox on this machine, a line each.
fn remains_of_sandbox(server: &Server, id: &str) -> Vec<String> {
    let dir = sandbox(server, id);
    let mut left = remains_of(&dir);
    left.extend(dir.exists().then(|| format!("{}", dir.display())));
    left.extend(control_groups_named(id));
    left.extend(claims_below(&dir));
    left
}

#[test]
fn i5_a_killed_chromium_ends_its_session_and_its_pool_fills_again() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    pool(server, "crashing", 1)?;
    let session = server.acquire("crashing")?;
    let browser = browser_of(server, &session)?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    client.page()?;

    server.signal(&chromium(server, &browser)?[0], Signal::KILL)?;

    assert_eq!(client.until_closed()?, Some((4002, "crashed".to_owned())));
    let path = format!("/browsers/{}", session.id());
    until("the session has ended", SOON, || (server.get(&path).ok()?.status == 404).then_some(()))?;
    assert_eq!(end_reason(server, session.id())?, "crashed");
    let refused = Cdp::connect(session.text("cdp_ws_url")).err().context("the dead session took a connection")?;
    assert!(refused.to_string().contains("404"), "{refused}");
    let next = server.acquire("crashing")?;
    assert_ne!(browser_of(server, &next)?, browser);
    until("nothing of the sandbox is left", SOON, || {
        let dir = sandbox(server, &browser);
        (!dir.exists() && processes_of(&dir).is_empty()).then_some(())
    })?;
    gone(server, "crashing")
}

#[test]
fn i5_a_pool_whose_browsers_are_killed_again_and_again_fills_again_each_time() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    pool(server, "mortal", 1)?;
    let mut killed: Vec<String> = Vec::new();
    for _ in 0..3 {
        let browser = filled_anew(server, "mortal", &killed)?;
        server.signal(&chromium(server, &browser)?[0], Signal::KILL)?;
        killed.push(browser);
    }

    let last = filled_anew(server, "mortal", &killed)?;
    let session = server.acquire("mortal")?;
    assert_eq!(browser_of(server, &session)?, last);
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    let mut left: Vec<String> = Vec::new();
    until("nothing of the killed ones is left", SOON, || {
        left = killed.iter().flat_map(|id| remains_of_sandbox(server, id)).collect();
        left.is_empty().then_some(())
    })
    .with_context(|| format!("{left:#?}"))?;
    gone(server, "mortal")
}

/// Waits for an idle browser of a pool besides those that were killed: the last of them stands there until its death is noticed.
fn filled_anew(server: &Server, pool: &str, killed: &[String]) -> anyhow::Result<String> {
    until("the pool has filled again", 5 * SOON, || {
        idle_browsers(server, pool).ok()?.into_iter().find(|id| !killed.contains(id))
    })
}

#[test]
fn i5_a_session_outlives_its_gpu_process() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    for headless in [true, false] {
        let session = server.create(&json!({ "headless": headless, "timeout_seconds": 600 }))?;
        let browser = browser_of(server, &session)?;
        let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = client.page()?;
        client.open(&page, &pages.url("/green"))?;
        client.until_drawn(&page)?;
        client.evaluate(&page, "window.mark = 42")?;
        let shown = picture(&mut client, &page)?;
        let first = until("it has a GPU process", SOON, || gpu_process(server, &browser))?;

        server.signal(&first, Signal::KILL)?;

        assert_eq!(client.evaluate(&page, "window.mark")?, 42, "the same page answers on the same connection");
        // Before that the browser may not have noticed, and a picture would be asked of the dead one.
        until("another GPU process has taken its place", SOON, || {
            gpu_process(server, &browser).filter(|now| now.pid != first.pid)
        })?;
        assert!(picture(&mut client, &page)? == shown, "it is drawn as before: all green");
        let shot = server.post(&format!("/browsers/{}/computer/screenshot", session.id()), &json!({}))?.expect(200)?;
        assert_eq!(png_size(&shot.body), Some((1920, 1080)));
        assert_eq!(end_reason(server, session.id())?, "", "the session goes on");
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}

/// The process that draws for all pages of a browser.
fn gpu_process(server: &Server, browser: &str) -> Option<Process> {
    chromium(server, browser).ok()?.into_iter().find(|process| kind(process) == Some("gpu-process"))
}

/// What a page shows, as Chromium hands it out.
fn picture(client: &mut Cdp, page: &str) -> anyhow::Result<String> {
    let taken = client.call_in(Some(page), "Page.captureScreenshot", &json!({}))?;
    Ok(taken["data"].as_str().context("no picture")?.to_owned())
}

/// Deletes a pool with all that it has.
fn gone(server: &Server, pool: &str) -> anyhow::Result<()> {
    server.send("DELETE", &format!("/browser_pools/{pool}"), Some(&json!({ "force": true })))?.expect(204).map(drop)
}

#[test]
fn every_socket_of_a_session_is_told_why_it_ends() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let deleted = server.headless()?;
    let live = deleted.text("browser_live_view_url").replacen("http", "ws", 1).replacen('?', "/socket?", 1);
    let mut clients = vec![
        Cdp::connect(deleted.text("cdp_ws_url"))?,
        Cdp::connect(deleted.text("cdp_ws_url"))?,
        Cdp::connect(deleted.text("webdriver_ws_url"))?,
        Cdp::connect(&live)?,
    ];
    server.delete(&format!("/browsers/{}", deleted.id()))?.expect(204)?;
    for client in &mut clients {
        assert_eq!(client.until_closed()?, Some((4000, "deleted".to_owned())));
    }

    pool(server, "lending", 1)?;
    let released = server.acquire("lending")?;
    let mut client = Cdp::connect(released.text("cdp_ws_url"))?;
    server.release("lending", &released)?;
    assert_eq!(client.until_closed()?, Some((4003, "released".to_owned())));
    gone(server, "lending")
}

/// The database is away, the browser is not.
fn assert_unavailable(server: &Server, client: &mut Cdp, page: &str) -> anyhow::Result<()> {
    let sum = client.evaluate(page, "6 * 7")?;
    assert_eq!(sum, 42, "CDP goes on");
    let answer = until("the API says that the database is away", SOON, || {
        server.get("/browsers").ok().filter(|answer| answer.status != 200)
    })?;
    let told = (answer.status, answer.header("retry-after").is_some(), answer.json()?["code"].clone());
    assert_eq!(told, (503, true, json!("unavailable")), "{}", answer.text());
    let ready = |path: &str| Request::new("GET", path).send(server.address());
    assert_eq!((ready("/readyz")?.status, ready("/healthz")?.status), (503, 200));
    let create = server.post("/browsers", &json!({ "headless": true }))?;
    assert_eq!((create.status, create.header("retry-after").is_some()), (503, true), "{}", create.text());
    assert_eq!(client.evaluate(page, "6 * 7")?, 42, "CDP still goes on");
    Ok(())
}

fn until_well(server: &Server) -> anyhow::Result<()> {
    let well = |answer: Answer| (answer.status == 200).then_some(());
    until("the API answers again", SOON, || server.get("/browsers").ok().and_then(well))
}

#[test]
fn i2_the_private_postgresql_is_killed_and_comes_back_by_itself_under_live_cdp_traffic() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let session = server.headless()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    let postmaster = server.data_dir().join("postgres/postmaster.pid");
    let pid = || fs::read_to_string(&postmaster).ok()?.lines().next()?.parse::<i32>().ok();
    let old = pid().context("no postmaster")?;

    // Whoever holds this file keeps the cluster from being started, so the outage lasts as long as the test wants.
    let held = File::options().write(true).open(server.data_dir().join("postgres.lock"))?;
    flock(&held, FlockOperation::LockExclusive)?;
    let process = server.processes().into_iter().find(|process| process.pid == old);
    server.signal(&process.context("the postmaster is not ours")?, Signal::KILL)?;
    assert_unavailable(&server, &mut client, &page)?;
    drop(held);

    until_well(&server)?;
    assert_ne!(pid(), Some(old));
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    let found = server.get(&format!("/browsers/{}", session.id()))?.expect(200)?.json()?;
    assert_eq!(found["cdp_ws_url"], session.0["cdp_ws_url"]);
    let other = server.headless()?;
    server.delete(&format!("/browsers/{}", other.id()))?.expect(204).map(drop)
}

/// What is stored now needs room.
fn large_pool(server: &Server, name: &str) -> anyhow::Result<Answer> {
    let noise = |n: u64| Ulid::from_parts(n, u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    let noise: Vec<String> = (0..8000_u64).map(|n| format!("https://{}.example/", noise(n))).collect();
    server.post(
        "/browser_pools",
        &json!({ "name": name, "size": 1, "headless": true, "browser_policy": { "URLBlocklist": noise } }),
    )
}

#[test]
fn i2_a_database_of_the_operator_is_slow_full_or_away_for_a_while_and_a_browser_dies_meanwhile() -> anyhow::Result<()> {
    let open = Permissions::from_mode(0o711);
    let place = tempfile::Builder::new().prefix("casement-e2e-pg-").permissions(open).tempdir_in("/tmp")?;
    // Who is not root cannot have a disk of its own.
    let disk = geteuid().is_root().then(|| SmallDisk::mount(place.path().join("disk"))).transpose()?;
    let data_dir = disk.as_ref().map_or(place.path(), |disk| disk.path()).join("postgres");
    let runtime = Runtime::new()?;
    let start = || runtime.block_on(Cluster::start(ClusterConfig::new(&data_dir)));
    let cluster = start()?;
    let way = Way::open(&runtime, place.path().join("way"), cluster.socket_dir().to_owned())?;
    let url = cluster.url().replace(&*cluster.socket_dir().to_string_lossy(), &way.directory().to_string_lossy());
    let flags = vec!["--database-url".to_owned(), url];
    let server = Server::start(Options { flags, ..Options::default() })?;
    assert!(!server.data_dir().join("postgres").exists(), "no private cluster beside the operator's");
    let of_width = |width: u32| {
        let viewport = json!({ "width": width, "height": 600 });
        server.create(&json!({ "headless": true, "timeout_seconds": 600, "viewport": viewport }))
    };
    let (lasting, dying) = (of_width(800)?, of_width(802)?);
    let mut client = Cdp::connect(lasting.text("cdp_ws_url"))?;
    let page = client.page()?;
    let mut doomed = Cdp::connect(dying.text("cdp_ws_url"))?;
    let dead = sandboxes(&server)?.iter().find_map(|id| {
        let browser = chromium(&server, id).ok()?.into_iter().next()?;
        browser.argv.join(" ").contains("--window-size=802,").then_some(browser)
    });
    let dead = dead.context("no browser of that width")?;

    // A call that asks three times takes half of what it may take, so that a busy machine may add to it.
    way.be_slow(Duration::from_millis(300));
    server.get("/browsers")?.expect(200)?;
    let named = json!({ "name": "in slow times" });
    server.send("PATCH", &format!("/browsers/{}", lasting.id()), Some(&named))?.expect(200)?;
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    way.be_slow(Duration::ZERO);

    if let Some(disk) = &disk {
        let filler = disk.fill()?;
        let refused = (0..20)
            .find_map(|n| large_pool(&server, &format!("large-{n}")).ok().filter(|answer| answer.status != 201))
            .context("there is always room")?;
        let told = (refused.status, refused.header("retry-after").is_some(), refused.json()?["code"].clone());
        assert_eq!(told, (503, true, json!("unavailable")), "{}", refused.text());
        assert_eq!(client.evaluate(&page, "6 * 7")?, 42, "CDP goes on");
        fs::remove_file(filler)?;
        // Each time another one: of what was not answered in time, nobody knows whether it was stored.
        let mut tried = 0;
        until("there is room again", SOON, || {
            tried += 1;
            (large_pool(&server, &format!("fits-{tried}")).ok()?.status == 201).then_some(())
        })?;
        let records = "/audit-logs/export/chunk?start=2020-01-01&end=2100-01-01&format=jsonl&method=POST&search=503";
        until("what could not be recorded then is recorded now", SOON, || {
            server.get(records).ok()?.text().contains("\"path\":\"/browser_pools\"").then_some(())
        })?;
    }

    runtime.block_on(cluster.stop())?;
    let stopped = Instant::now();
    assert_unavailable(&server, &mut client, &page)?;
    server.signal(&dead, Signal::KILL)?;
    assert_eq!(doomed.until_closed()?, Some((4002, "crashed".to_owned())));
    until("the server has noticed", SOON, || {
        assert_eq!(client.evaluate(&page, "6 * 7").ok()?, 42);
        (stopped.elapsed() > Duration::from_secs(10)).then_some(())
    })?;
    let cluster = start()?;

    until_well(&server)?;
    let path = |session: &Session| format!("/browsers/{}", session.id());
    until("the end of the dead browser is noted", SOON, || {
        (server.get(&path(&dying)).ok()?.status == 404).then_some(())
    })?;
    assert_eq!(server.get(&path(&lasting))?.status, 200);
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    drop(server);
    runtime.block_on(cluster.stop())?;
    Ok(())
}
