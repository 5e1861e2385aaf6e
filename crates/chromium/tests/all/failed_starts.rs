//! Tests that failed starts leave nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use casement_chromium::EngineConfig;
use casement_domain::browser::{BrowserEngine, EngineError, EngineFault, Shape};

use super::support::{Fixture, headless, launch, sized, until};

/// Starts a browser with a broken configuration and returns the error.
async fn failure(change: impl FnOnce(&mut EngineConfig), shape: Shape) -> anyhow::Result<EngineError> {
    let fixture = Fixture::with(change).await?;
    let launch = launch(shape);
    let error = fixture.engine.start(&launch).await.expect_err("cannot start");
    assert_eq!(fixture.remains(launch.id), Vec::<String>::new());
    Ok(error)
}

/// Makes of `program` one that prepares the network of a sandbox, and fails as an agent.
fn failing_as_agent(program: &Path, dir: &Path) -> anyhow::Result<PathBuf> {
    let script = dir.join("failing-agent");
    fs::write(&script, format!("#!/bin/sh\n[ \"$1\" = network ] && exec {} \"$@\"\nexit 1\n", program.display()))?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    Ok(script)
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
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o711)).tempdir_in("/tmp")?;
    let failing = failing_as_agent(Path::new(env!("CARGO_BIN_EXE_casement-chromium-agent")), dir.path())?;
    let error = failure(|config| config.program = failing, headless()).await?;
    assert_eq!(fault(&error), Some(EngineFault::AgentError), "{error}");
    for program in [nothing(), missing()] {
        let error = failure(|config| config.program = program, headless()).await?;
        assert!(matches!(error, EngineError::NoRoom(_)), "{error}");
        assert!(!error.to_string().contains("/tmp"), "paths of the host are not shown: {error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_no_one_waits_for_leaves_nothing() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let launch = launch(headless());
    for timeout in [1, 60, 300] {
        let start = fixture.engine.start(&launch);
        if tokio::time::timeout(Duration::from_millis(timeout), start).await.is_ok_and(|started| started.is_ok()) {
            fixture.engine.end(launch.id).await?;
        }
        until("nothing is left", || fixture.remains(launch.id).is_empty()).await?;
        // The browser's slot is removed a moment after its processes.
        fixture.engine.end(launch.id).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_can_be_ended_while_it_starts() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let launch = launch(headless());
    let ended = async {
        until("the sandbox is being made", || fixture.sandbox(launch.id).exists()).await?;
        anyhow::Ok(fixture.engine.end(launch.id).await?)
    };
    let (started, ended) = tokio::join!(fixture.engine.start(&launch), ended);
    ended?;
    assert!(started.is_err());
    assert_eq!(fixture.remains(launch.id), Vec::<String>::new());
    Ok(())
}
