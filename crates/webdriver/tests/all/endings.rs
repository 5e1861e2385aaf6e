//! Browsers that end by themselves.

use casement_domain::browser::BrowserEngine;
use casement_webdriver::{EngineEvent, What, Why};
use rustix::process::Signal;
use serde_json::json;

use super::cdp::Cdp;
use super::support::{Place, chromium, headless, next, signal};

/// Takes memory in steps, so that whoever watches has a chance to see it.
const GROW: &str = "globalThis.held = []; setInterval(() => held.push(new Uint8Array(16 << 20).fill(7)), 40)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_page_that_takes_all_memory_ends_its_own_browser_alone() -> anyhow::Result<()> {
    let place = Place::with(|config| config.memory_bytes = 600 << 20).await?;
    let mut events = place.engine.events();
    let (greedy, other) = tokio::join!(place.start(headless()), place.start(headless()));
    let (greedy, other) = (greedy?, other?);
    Cdp::attach(&place.engine, greedy).await?.tell("Runtime.evaluate", json!({ "expression": GROW })).await?;
    assert_eq!(next(&mut events).await?, EngineEvent { browser: greedy, what: What::Exited(Why::Oom) });
    place.engine.hand_out(other, None).await?;
    place.engine.end(greedy).await?;
    assert_eq!(place.remains(greedy), Vec::<String>::new());
    place.engine.hand_out(other, None).await?;

    // The other one dies of something else, and says so.
    signal(chromium(&place.engine, other).await?, Signal::KILL)?;
    assert_eq!(next(&mut events).await?, EngineEvent { browser: other, what: What::Exited(Why::Crashed) });
    place.engine.end(other).await?;
    assert!(events.try_recv().is_err(), "each end is told once");
    Ok(())
}
