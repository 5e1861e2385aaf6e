//! Browsers that end by themselves.

use std::time::Instant;

use casement_domain::browser::{BrowserEngine, HandOut};
use casement_webdriver::{EngineEvent, What, Why};
use serde_json::json;

use super::cdp::Cdp;
use super::support::{Place, headless, next};

/// Takes memory in steps, so that whoever watches has a chance to see it.
const SLOWLY: &str = "globalThis.held = []; setInterval(() => held.push(new Uint8Array(16 << 20).fill(7)), 40)";
/// Takes it so fast that only the kernel can be in time.
const AT_ONCE: &str = "globalThis.held = []; for (;;) held.push(new Uint8Array(16 << 20).fill(7))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_page_that_takes_all_memory_ends_its_own_browser_alone() -> anyhow::Result<()> {
    let place = Place::with(|config| config.memory_bytes = 600 << 20).await?;
    let mut events = place.engine.events();
    let (greedy, sudden, other) =
        tokio::join!(place.start(headless()), place.start(headless()), place.start(headless()));
    let other = other?;
    for (id, script) in [(greedy?, SLOWLY), (sudden?, AT_ONCE)] {
        let began = Instant::now();
        Cdp::attach(&place.engine, id).await?.tell("Runtime.evaluate", json!({ "expression": script })).await?;
        assert_eq!(next(&mut events).await?, EngineEvent { browser: id, what: What::Exited(Why::Oom) });
        eprintln!("out of memory after {:?}", began.elapsed());
        place.engine.hand_out(other, HandOut::default()).await?;
        place.engine.end(id).await?;
        assert_eq!(place.remains(id), Vec::<String>::new());
    }
    place.engine.hand_out(other, HandOut::default()).await?;
    assert!(events.try_recv().is_err(), "each end is told once");
    Ok(())
}
