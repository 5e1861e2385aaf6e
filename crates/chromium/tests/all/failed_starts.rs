//! Starts that come to nothing leave nothing.

use std::path::Path;
use std::time::Duration;

use casement_chromium::EngineConfig;
use casement_domain::browser::{BrowserEngine, EngineError, EngineFault, Shape};

use super::support::{BrowserSlot, headless, launch, sized, until};

/// A place that runs something else in place of one of the programs.
async fn failure(change: impl FnOnce(&mut EngineConfig), shape: Shape) -> anyhow::Result<EngineError> {
    let place = BrowserSlot::with(change).await?;
    let launch = launch(shape);
    let error = place.engine.start(&launch).await.expect_err("cannot start");
    assert_eq!(place.remains(launch.id), Vec::<String>::new());
    Ok(error)
}

fn fault(error: &EngineError) -> Option<EngineFault> {
    match error {
        EngineError::Failed { fault, .. } => Some(*fault),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_says_which_part_failed_and_leaves_nothing() -> anyhow::Result<()> {
    let nothing = || Path::new("/usr/bin/false").to_owned();
    let missing = || Path::new("/usr/bin/not-there").to_owned();
    for chromium in [nothing(), missing()] {
        let error = failure(|config| config.chromium = chromium, headless()).await?;
        assert_eq!(fault(&error), Some(EngineFault::BrowserCrashed), "{error}");
    }
    let error = failure(|config| config.xvfb = nothing(), sized(800, 600)).await?;
    assert_eq!(fault(&error), Some(EngineFault::DisplayError), "{error}");
    let error = failure(|config| config.program = nothing(), headless()).await?;
    assert_eq!(fault(&error), Some(EngineFault::AgentError), "{error}");
    let error = failure(|config| config.program = missing(), headless()).await?;
    assert!(matches!(error, EngineError::NoRoom(_)), "{error}");
    assert!(!error.to_string().contains("/tmp"), "paths of the host are not shown: {error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_nobody_waits_for_leaves_nothing() -> anyhow::Result<()> {
    let place = BrowserSlot::new().await?;
    let launch = launch(headless());
    for patience in [1, 60, 300] {
        let start = place.engine.start(&launch);
        if tokio::time::timeout(Duration::from_millis(patience), start).await.is_ok_and(|started| started.is_ok()) {
            place.engine.end(launch.id).await?;
        }
        until("nothing is left", || place.remains(launch.id).is_empty()).await?;
        // The last of it is forgotten a moment after it is gone.
        place.engine.end(launch.id).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_can_be_ended_while_it_starts() -> anyhow::Result<()> {
    let place = BrowserSlot::new().await?;
    let launch = launch(headless());
    let ended = async {
        until("the sandbox is being made", || place.sandbox(launch.id).exists()).await?;
        anyhow::Ok(place.engine.end(launch.id).await?)
    };
    let (started, ended) = tokio::join!(place.engine.start(&launch), ended);
    ended?;
    assert!(started.is_err());
    assert_eq!(place.remains(launch.id), Vec::<String>::new());
    Ok(())
}
