//! Tests with a PostgreSQL that is killed, slow, full or unreachable: sessions continue, and the API recovers by
//! itself.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use casement_postgres::{Cluster, ClusterConfig};
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Cdp, Options, Server, Session, until};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, geteuid};
use serde_json::json;
use tokio::runtime::Runtime;
use ulid::Ulid;

use super::bad_database::{SlowForwarder, SmallDisk};
use super::host::{chromium, sandboxes};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Asserts that the API reports an unavailable database while the browser still answers.
fn assert_unavailable(server: &Server, client: &mut Cdp, page: &str) -> anyhow::Result<()> {
    let sum = client.evaluate(page, "6 * 7")?;
    assert_eq!(sum, 42, "CDP goes on");
    let answer = until("the API says that the database is away", TEST_TIMEOUT, || {
        server.get("/browsers").ok().filter(|answer| answer.status != 200)
    })?;
    let refusal = (answer.status, answer.header("retry-after").is_some(), answer.json()?["code"].clone());
    assert_eq!(refusal, (503, true, json!("unavailable")), "{}", answer.text());
    let ready = |path: &str| Request::new("GET", path).send(server.address());
    assert_eq!((ready("/readyz")?.status, ready("/healthz")?.status), (503, 200));
    let create = server.post("/browsers", &json!({ "headless": true }))?;
    assert_eq!((create.status, create.header("retry-after").is_some()), (503, true), "{}", create.text());
    assert_eq!(client.evaluate(page, "6 * 7")?, 42, "CDP still goes on");
    Ok(())
}

fn until_well(server: &Server) -> anyhow::Result<()> {
    let well = |answer: Answer| (answer.status == 200).then_some(());
    until("the API answers again", TEST_TIMEOUT, || server.get("/browsers").ok().and_then(well))
}

#[test]
fn the_private_postgresql_restarts_after_a_kill_while_cdp_traffic_continues() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let session = server.headless()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    let pid_file = server.data_dir().join("postgres/postmaster.pid");
    let pid = || fs::read_to_string(&pid_file).ok()?.lines().next()?.parse::<i32>().ok();
    let old = pid().context("no postmaster")?;

    // The lock on this file prevents a start of the cluster, so the test controls the end of the outage.
    let held = File::options().write(true).open(server.data_dir().join("postgres.lock"))?;
    flock(&held, FlockOperation::LockExclusive)?;
    let process = server.processes().into_iter().find(|process| process.pid == old);
    server.signal(&process.context("the postmaster is not ours")?, Signal::KILL)?;
    assert_unavailable(&server, &mut client, &page)?;
    // What has the session's token goes on, here a second client; a key needs the database.
    let mut second = Cdp::connect(session.text("cdp_ws_url"))?;
    let second_page = second.page()?;
    assert_eq!(second.evaluate(&second_page, "6 * 7")?, 42);
    let token = session.text("cdp_ws_url").split("jwt=").nth(1).context("no token")?.to_owned();
    let direct = format!("/vm/{}/process/exec?jwt={token}", session.id());
    let program = Request::new("POST", &direct).json(&json!({ "command": "echo done" })).send(server.address())?;
    assert_eq!((program.status, program.json()?["exit_code"].clone()), (200, json!(0)), "{}", program.text());
    let with_key = server.post(&format!("/browsers/{}/computer/screenshot", session.id()), &json!({}))?;
    assert_eq!((with_key.status, with_key.json()?["code"].clone()), (503, json!("unavailable")), "{}", with_key.text());
    let intents = server.data_dir().join("audit-intents.jsonl");
    assert_eq!(fs::read_to_string(&intents)?.lines().count(), 2, "the connection and the program are recorded on disk");
    drop(second);
    drop(held);

    until_well(&server)?;
    let connections = "/audit-logs/export/chunk?start=2020-01-01&end=2100-01-01&format=jsonl&search=cdp";
    until("both connections have their record", TEST_TIMEOUT, || {
        let records =
            server.get(connections).ok()?.text().lines().filter(|line| line.contains("session_token")).count();
        (records == 2).then_some(())
    })?;
    until("the disk has no intents", TEST_TIMEOUT, || {
        fs::read(&intents).is_ok_and(|left| left.is_empty()).then_some(())
    })?;
    assert_ne!(pid(), Some(old));
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    let found = server.get(&format!("/browsers/{}", session.id()))?.expect(200)?.json()?;
    assert_eq!(found["cdp_ws_url"], session.0["cdp_ws_url"]);
    let other = server.headless()?;
    server.delete(&format!("/browsers/{}", other.id()))?.expect(204).map(drop)
}

/// Creates a pool that needs disk space.
fn large_pool(server: &Server, name: &str) -> anyhow::Result<Answer> {
    let noise = |n: u64| Ulid::from_parts(n, u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    let noise: Vec<String> = (0..8000_u64).map(|n| format!("https://{}.example/", noise(n))).collect();
    server.post(
        "/browser_pools",
        &json!({ "name": name, "size": 1, "headless": true, "browser_policy": { "URLBlocklist": noise } }),
    )
}

#[test]
fn sessions_continue_while_the_given_database_is_slow_full_or_unreachable() -> anyhow::Result<()> {
    let open = Permissions::from_mode(0o711);
    let place = tempfile::Builder::new().prefix("casement-e2e-pg-").permissions(open).tempdir_in("/tmp")?;
    // Only root can mount a disk.
    let disk = geteuid().is_root().then(|| SmallDisk::mount(place.path().join("disk"))).transpose()?;
    let data_dir = disk.as_ref().map_or(place.path(), |disk| disk.path()).join("postgres");
    let runtime = Runtime::new()?;
    let start = || runtime.block_on(Cluster::start(ClusterConfig::new(&data_dir)));
    let cluster = start()?;
    let forwarder = SlowForwarder::open(&runtime, place.path().join("way"), cluster.socket_dir().to_owned())?;
    let url = cluster.url().replace(&*cluster.socket_dir().to_string_lossy(), &forwarder.directory().to_string_lossy());
    let flags = vec!["--database-url".to_owned(), url];
    let server = Server::start(Options { flags, ..Options::default() })?;
    assert!(!server.data_dir().join("postgres").exists(), "no private cluster beside the operator's");
    let of_width = |width: u32| {
        let viewport = json!({ "width": width, "height": 600 });
        server.create(&json!({ "headless": true, "timeout_seconds": 600, "viewport": viewport }))
    };
    let (surviving, dying) = (of_width(800)?, of_width(802)?);
    let mut client = Cdp::connect(surviving.text("cdp_ws_url"))?;
    let page = client.page()?;
    let mut doomed = Cdp::connect(dying.text("cdp_ws_url"))?;
    let dead = sandboxes(&server)?.iter().find_map(|id| {
        let browser = chromium(&server, id).ok()?.into_iter().next()?;
        browser.argv.join(" ").contains("--window-size=802,").then_some(browser)
    });
    let dead = dead.context("no browser of that width")?;

    // A call with three queries takes half of its timeout, so that a busy machine has a reserve.
    forwarder.set_delay(Duration::from_millis(300));
    server.get("/browsers")?.expect(200)?;
    let named = json!({ "name": "in slow times" });
    server.send("PATCH", &format!("/browsers/{}", surviving.id()), Some(&named))?.expect(200)?;
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    forwarder.set_delay(Duration::ZERO);

    if let Some(disk) = &disk {
        let filler = disk.fill()?;
        let refused = (0..20)
            .find_map(|n| large_pool(&server, &format!("large-{n}")).ok().filter(|answer| answer.status != 201))
            .context("there is always room")?;
        let refusal = (refused.status, refused.header("retry-after").is_some(), refused.json()?["code"].clone());
        assert_eq!(refusal, (503, true, json!("unavailable")), "{}", refused.text());
        assert_eq!(client.evaluate(&page, "6 * 7")?, 42, "CDP goes on");
        fs::remove_file(filler)?;
        // Each attempt uses another name, because a pool whose create timed out may be stored.
        let mut tried = 0;
        until("there is room again", TEST_TIMEOUT, || {
            tried += 1;
            (large_pool(&server, &format!("fits-{tried}")).ok()?.status == 201).then_some(())
        })?;
        let records = "/audit-logs/export/chunk?start=2020-01-01&end=2100-01-01&format=jsonl&method=POST&search=503";
        until("what could not be recorded then is recorded now", TEST_TIMEOUT, || {
            server.get(records).ok()?.text().contains("\"path\":\"/browser_pools\"").then_some(())
        })?;
    }

    runtime.block_on(cluster.stop())?;
    let stopped = Instant::now();
    assert_unavailable(&server, &mut client, &page)?;
    server.signal(&dead, Signal::KILL)?;
    assert_eq!(doomed.until_closed()?, Some((4002, "crashed".to_owned())));
    until("the server has noticed", TEST_TIMEOUT, || {
        assert_eq!(client.evaluate(&page, "6 * 7").ok()?, 42);
        (stopped.elapsed() > Duration::from_secs(10)).then_some(())
    })?;
    let cluster = start()?;

    until_well(&server)?;
    let path = |session: &Session| format!("/browsers/{}", session.id());
    until("the end of the dead browser is noted", TEST_TIMEOUT, || {
        (server.get(&path(&dying)).ok()?.status == 404).then_some(())
    })?;
    assert_eq!(server.get(&path(&surviving))?.status, 200);
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    drop(server);
    runtime.block_on(cluster.stop())?;
    Ok(())
}
