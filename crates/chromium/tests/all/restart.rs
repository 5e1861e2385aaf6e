//! Tests of browsers that continue after the server ends.

use std::sync::Arc;
use std::time::Duration;

use casement_chromium::{BrowserExitReason, Engine, EngineEvent, EngineSetupError};
use casement_domain::browser::{BrowserEngine, EngineError, HandOut};
use rustix::process::Signal;

use super::cdp::Cdp;
use super::fake_egress::{FakeEgress, SITE};
use super::support::{Fixture, chromium, config, hand_out, headless, launch, next, processes, signal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_adopts_browsers_and_ends_unknown_ones() -> anyhow::Result<()> {
    let mut fixture = Fixture::new().await?;
    let (stored, stranger) = tokio::join!(fixture.start(headless()), fixture.start(headless()));
    let (stored, stranger) = (stored?, stranger?);
    let mut client = Cdp::attach(&fixture.engine, stored).await?;
    // A mark on the initial page would be lost when its blank page is committed.
    assert_eq!(client.open(&format!("{SITE}/before")).await?, None);
    client.evaluate("globalThis.mark = 'from an earlier life'").await?;

    fixture.engine.clone().detach().await;
    fixture.egress = Arc::new(FakeEgress::default());
    fixture.engine = Engine::new(config(fixture.dir.path().to_owned())?, fixture.egress.clone()).await?;
    let mut events = fixture.engine.events();
    let mut found = fixture.engine.find_running().await?;
    found.sort_unstable();
    assert_eq!(found, [stored, stranger]);
    assert_eq!(client.evaluate("mark").await?, "from an earlier life", "an open connection goes on");
    assert_eq!(fixture.engine.sweep(&[stored]).await?, [stranger]);
    assert_eq!(fixture.remains(stranger), Vec::<String>::new());

    hand_out(&fixture.engine, stored, HandOut::default()).await?;
    let mut page = Cdp::attach(&fixture.engine, stored).await?;
    assert_eq!(page.evaluate("mark").await?, "from an earlier life");
    assert_eq!(page.open(SITE).await?, None);
    assert_eq!(page.evaluate("document.title").await?, "the site", "the way out is served again");

    let first = chromium(&fixture.engine, stored).await?;
    signal(first, Signal::KILL)?;
    assert_eq!(next(&mut events).await?, EngineEvent { browser: stored, reason: BrowserExitReason::Crashed });
    fixture.engine.end(stored).await?;
    assert_eq!(fixture.remains(stored), Vec::<String>::new());
    assert!(events.try_recv().is_err(), "its end is told once, and the stranger's was asked for");
    Ok(())
}

#[tokio::test]
async fn no_browser_starts_once_the_server_stops() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.engine.refuse_starts();
    let launch = launch(headless());
    let started = fixture.engine.start(&launch).await;
    assert!(matches!(started, Err(EngineError::Unavailable(_))), "{started:?}");
    assert!(!fixture.engine.is_known(launch.id));
    assert_eq!(fixture.remains(launch.id), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_whose_agent_is_slow_to_answer_is_taken_up_all_the_same() -> anyhow::Result<()> {
    let mut fixture = Fixture::new().await?;
    let id = fixture.start(headless()).await?;
    let agents = processes(&fixture.engine, id, |line| line.contains("/program") && !line.contains("bwrap")).await?;
    assert!(!agents.is_empty());

    fixture.engine.clone().detach().await;
    fixture.engine = Engine::new(config(fixture.dir.path().to_owned())?, fixture.egress.clone()).await?;
    agents.iter().try_for_each(|agent| signal(*agent, Signal::STOP))?;
    let found = tokio::spawn({
        let engine = fixture.engine.clone();
        async move { engine.find_running().await }
    });
    // Longer than the timeout of one query.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(!found.is_finished(), "given up while its sandbox lives");
    agents.iter().try_for_each(|agent| signal(*agent, Signal::CONT))?;

    assert_eq!(found.await??, [id]);
    fixture.engine.end(id).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandboxes_that_cannot_be_looked_through_are_not_taken_for_none() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let engine = Engine::new(config(dir.path().to_owned())?, Arc::new(FakeEgress::default())).await?;
    let sandboxes = dir.path().join("sandboxes");
    std::fs::remove_dir_all(&sandboxes)?;
    std::fs::write(&sandboxes, "no directory")?;
    let error = engine.find_running().await.expect_err("nobody can tell what runs");
    assert!(matches!(error, EngineSetupError::ListSandboxes(_)), "{error}");
    assert!(error.to_string().contains("sandboxes of a previous server process cannot be listed"), "{error}");
    Ok(())
}
