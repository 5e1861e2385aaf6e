//! Browsers that outlive the server.

use std::sync::Arc;

use casement_domain::browser::{BrowserEngine, HandOut};
use casement_webdriver::{Engine, EngineEvent, What, Why};
use rustix::process::Signal;

use super::cdp::Cdp;
use super::fake_egress::{FakeEgress, SITE};
use super::support::{Place, chromium, config, headless, next, signal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i5_a_later_life_takes_browsers_up_and_ends_strangers() -> anyhow::Result<()> {
    let mut place = Place::new().await?;
    let (kept, stranger) = tokio::join!(place.start(headless()), place.start(headless()));
    let (kept, stranger) = (kept?, stranger?);
    let mut client = Cdp::attach(&place.engine, kept).await?;
    client.evaluate("globalThis.mark = 'from an earlier life'").await?;

    place.engine.clone().detach().await;
    place.egress = Arc::new(FakeEgress::default());
    place.engine = Engine::new(config(place.dir.path().to_owned())?, place.egress.clone()).await?;
    let mut events = place.engine.events();
    let mut found = place.engine.find_running().await;
    found.sort_unstable();
    assert_eq!(found, [kept, stranger]);
    assert_eq!(client.evaluate("mark").await?, "from an earlier life", "an open connection goes on");
    assert_eq!(place.engine.sweep(&[kept]).await?, [stranger]);
    assert_eq!(place.remains(stranger), Vec::<String>::new());

    place.engine.hand_out(kept, HandOut::default()).await?;
    let mut page = Cdp::attach(&place.engine, kept).await?;
    assert_eq!(page.evaluate("mark").await?, "from an earlier life");
    assert_eq!(page.open(SITE).await?, None);
    assert_eq!(page.evaluate("document.title").await?, "the site", "the way out is served again");

    let first = chromium(&place.engine, kept).await?;
    signal(first, Signal::KILL)?;
    assert_eq!(next(&mut events).await?, EngineEvent { browser: kept, what: What::Exited(Why::Crashed) });
    place.engine.end(kept).await?;
    assert_eq!(place.remains(kept), Vec::<String>::new());
    assert!(events.try_recv().is_err(), "its end is told once, and the stranger's was asked for");
    Ok(())
}
