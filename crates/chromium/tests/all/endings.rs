//! Browsers that end by themselves.

use std::time::{Duration, Instant};

use anyhow::Context;
use casement_agent_protocol::CONFIG_PATH;
use casement_chromium::{BrowserExitReason, EngineEvent, What};
use casement_domain::browser::{BrowserEngine, HandOut};
use serde_json::{Value, json};

use super::cdp::Cdp;
use super::fake_egress::SITE;
use super::support::{BrowserSlot, hand_out, headless, next, processes, within};

/// Takes memory in steps, so that whoever watches has a chance to see it.
const SLOWLY: &str = "globalThis.held = []; setInterval(() => held.push(new Uint8Array(16 << 20).fill(7)), 40)";
/// Takes it so fast that only the kernel can be in time.
const AT_ONCE: &str = "globalThis.held = []; for (;;) held.push(new Uint8Array(16 << 20).fill(7))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_page_that_takes_all_memory_ends_its_own_browser_alone() -> anyhow::Result<()> {
    let place = BrowserSlot::with(|config| config.memory_bytes = 600 << 20).await?;
    let mut events = place.engine.events();
    let (greedy, sudden, other) =
        tokio::join!(place.start(headless()), place.start(headless()), place.start(headless()));
    let other = other?;
    for (id, script) in [(greedy?, SLOWLY), (sudden?, AT_ONCE)] {
        // What runs on the page that a browser begins with ends where that comes to its blank address.
        let mut page = Cdp::attach(&place.engine, id).await?;
        assert_eq!(page.open(SITE).await?, None);
        let began = Instant::now();
        page.tell("Runtime.evaluate", json!({ "expression": script })).await?;
        assert_eq!(next(&mut events).await?, EngineEvent { browser: id, what: What::Exited(BrowserExitReason::Oom) });
        eprintln!("out of memory after {:?}", began.elapsed());
        hand_out(&place.engine, other, HandOut::default()).await?;
        place.engine.end(id).await?;
        assert_eq!(place.remains(id), Vec::<String>::new());
    }
    hand_out(&place.engine, other, HandOut::default()).await?;
    assert!(events.try_recv().is_err(), "each end is told once");
    Ok(())
}

/// Where the kernel limits the memory it tells when that is full; looking at it all the time would cost every idle session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_an_idle_browser_sleeps_unless_it_alone_watches_the_memory() -> anyhow::Result<()> {
    let place = BrowserSlot::new().await?;
    let id = place.start(headless()).await?;
    let record: Value = serde_json::from_slice(&std::fs::read(place.sandbox(id).join("state.json"))?)?;
    let agents = processes(&place.engine, id, |line| line.starts_with("/run/casement/program agent")).await?;
    let agent = *agents.last().context("an agent runs")?;
    let told: Value = serde_json::from_slice(&std::fs::read(format!("/proc/{agent}/root{CONFIG_PATH}"))?)?;
    let watches = record["memory"] == "None";
    assert_eq!(told["memory_limit_bytes"].is_u64(), watches, "{record} {told}");

    // A start that has just ended is still tidied up.
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
    // On a busy machine the end of the start may come as late as this. One that watches all the time wakes in every four seconds.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let before = wakes(agent)?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        // A heartbeat is due every ten seconds.
        let woken = wakes(agent)?.saturating_sub(before);
        eprintln!("the agent woke {woken} times in four seconds");
        if watches || woken <= 10 {
            return Ok(());
        }
        assert!(Instant::now() < deadline, "the agent of an idle browser woke {woken} times");
    }
}

/// How often a process has been given the processor after it had waited for something, all of its threads together.
fn wakes(pid: i32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end before it is looked at.
        let Ok(status) = std::fs::read_to_string(thread?.path().join("status")) else { continue };
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += count.context("a count")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}
