//! Tests of the apps of `docs/examples`, deployed and invoked with the commands of the program.

use std::process::{Command, Output};

use anyhow::Context as _;
use base64::Engine as _;
use casement_test_support::png_size;
use casement_test_support::program::{Clients, Server, Shared, repository};
use serde_json::{Value, json};

/// Runs a command of the program against a server.
fn casement(server: &Server, words: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casement"));
    command.args(words).env("KERNEL_BASE_URL", server.url()).env("KERNEL_API_KEY", server.key());
    Ok(command.output()?)
}

fn printed(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Deploys an example and invokes it on a page. Returns the id of the deployment.
fn from_folder_to_result(folder: &str, app: &str) -> anyhow::Result<String> {
    let Shared { server, pages } = Shared::get();
    let place = repository().join("docs/examples").join(folder);
    let deployed = casement(server, &["deploy", place.to_str().context("a path")?, "--force"])?;
    let (deployment, stderr) = printed(&deployed);
    assert!(deployed.status.success(), "{stderr}");
    assert!(stderr.contains(&format!("casement invoke {app} look")), "{stderr}");

    let page = pages.url("/form");
    let payload = json!({ "url": page }).to_string();
    let invoked = casement(server, &["invoke", app, "look", &payload])?;
    let (result, stderr) = printed(&invoked);
    assert!(invoked.status.success(), "{stderr}");
    assert!(stderr.contains(&format!("opening {page}")), "{stderr}");
    let result: Value = serde_json::from_str(&result)?;
    assert_eq!(result["title"], "A form");
    let picture = base64::prelude::BASE64_STANDARD.decode(result["screenshot"].as_str().context("a screenshot")?)?;
    assert!(png_size(&picture).is_some());

    let invocation = stderr.lines().find_map(|line| line.strip_prefix("invocation 0")).context("its id")?;
    let (log, _) = printed(&casement(server, &["logs", &format!("0{invocation}")])?);
    assert_eq!(log, format!("opening {page}"));

    let failed = casement(server, &["invoke", app, "look", "{}"])?;
    let (_, stderr) = printed(&failed);
    assert!(!failed.status.success() && stderr.contains("the invocation failed: "), "{stderr}");
    Ok(deployment)
}

#[test]
fn the_python_example_app_is_deployed_and_run_and_the_page_shows_and_stops_it() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let deployment = from_folder_to_result("app_python", "page-python")?;
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/ui_apps.mjs", &["page-python", &deployment])?;
    for name in ["apps.png", "deployment.png", "phone-deployment.png"] {
        std::fs::write(format!("{}/ui-{name}", env!("CARGO_TARGET_TMPDIR")), run.file(name)?)?;
    }
    let saw = json!({
        "card": ["running", ["look"]],
        "calls": ["failed", "succeeded"],
        "said": format!("opening {}", pages.url("/form")),
        "canCancel": false,
        "reason": "stopped by request",
        "wider": [0, 0],
        "faults": [],
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}

#[test]
fn the_typescript_example_app_is_deployed_and_run() -> anyhow::Result<()> {
    let deployment = from_folder_to_result("app_typescript", "page-typescript")?;
    Shared::get().server.delete(&format!("/deployments/{deployment}"))?.expect(204)?;
    Ok(())
}
