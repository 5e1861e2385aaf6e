//! Tests of browsers that end by themselves.

use std::time::{Duration, Instant};

use anyhow::Context;
use casement_agent_protocol::CONFIG_PATH;
use casement_chromium::{BrowserExitReason, EngineEvent};
use casement_domain::browser::{BrowserEngine, HandOut};
use serde_json::{Value, json};

use super::cdp::Cdp;
use super::fake_egress::SITE;
use super::support::{Fixture, hand_out, headless, next, processes, within};

/// Allocates memory in steps, so that the watch can notice.
const ALLOCATE_SLOWLY: &str =
    "globalThis.held = []; setInterval(() => held.push(new Uint8Array(16 << 20).fill(7)), 40)";
/// Allocates so fast that only the kernel can notice.
const ALLOCATE_FAST: &str = "globalThis.held = []; for (;;) held.push(new Uint8Array(16 << 20).fill(7))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_takes_all_memory_ends_its_own_browser_alone() -> anyhow::Result<()> {
    let fixture = Fixture::with(|config| config.memory_bytes = 600 << 20).await?;
    let mut events = fixture.engine.events();
    let (greedy, sudden, other) =
        tokio::join!(fixture.start(headless()), fixture.start(headless()), fixture.start(headless()));
    let other = other?;
    for (id, script) in [(greedy?, ALLOCATE_SLOWLY), (sudden?, ALLOCATE_FAST)] {
        // The initial page's scripts end when its blank page is committed.
        let mut page = Cdp::attach(&fixture.engine, id).await?;
        assert_eq!(page.open(SITE).await?, None);
        let began = Instant::now();
        page.send("Runtime.evaluate", json!({ "expression": script })).await?;
        assert_eq!(next(&mut events).await?, EngineEvent { browser: id, reason: BrowserExitReason::Oom });
        eprintln!("out of memory after {:?}", began.elapsed());
        hand_out(&fixture.engine, other, HandOut::default()).await?;
        fixture.engine.end(id).await?;
        assert_eq!(fixture.remains(id), Vec::<String>::new());
    }
    hand_out(&fixture.engine, other, HandOut::default()).await?;
    assert!(events.try_recv().is_err(), "each end is told once");
    Ok(())
}

/// The kernel reports when a memory that it limits is full; continuous measurement would cost every idle session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_an_idle_browser_sleeps_unless_it_alone_watches_the_memory() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let id = fixture.start(headless()).await?;
    let record: Value = serde_json::from_slice(&std::fs::read(fixture.sandbox(id).join("state.json"))?)?;
    let agents = processes(&fixture.engine, id, |line| line.starts_with("/run/casement/program agent")).await?;
    let agent = *agents.last().context("an agent runs")?;
    let sent: Value = serde_json::from_slice(&std::fs::read(format!("/proc/{agent}/root{CONFIG_PATH}"))?)?;
    let watches = record["memory"] == "None";
    assert_eq!(sent["memory_limit_bytes"].is_u64(), watches, "{record} {sent}");

    // The cleanup of the start may still run.
    within(Duration::from_secs(60), async {
        loop {
            let before = wakes(agent)?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            if watches || wakes(agent)?.saturating_sub(before) <= 2 {
                return anyhow::Ok(());
            }
        }
    })
    .await
    .context("it does not come to rest")??;
    // On a busy machine the cleanup of the start may end only now. An agent that measures exceeds the limit every time.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let before = wakes(agent)?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        // A heartbeat is sent every ten seconds.
        let wake_reason = wakes(agent)?.saturating_sub(before);
        eprintln!("the agent woke {wake_reason} times in four seconds");
        if watches || wake_reason <= 10 {
            return Ok(());
        }
        assert!(Instant::now() < deadline, "the agent of an idle browser woke {wake_reason} times");
    }
}

/// Returns the number of voluntary context switches of all threads of a process.
fn wakes(pid: i32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end before it is read.
        let Ok(status) = std::fs::read_to_string(thread?.path().join("status")) else { continue };
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += count.context("a count")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}
