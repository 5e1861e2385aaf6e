//! Tests of the commands for apps that `app_examples` does not test.

use std::process::{Command, Output};

use anyhow::Context as _;
use casement_test_support::program::{Server, Shared};

use super::programs::{python, write_files};

const MAIN: &str = "
import os
import kernel

print('loading it')
app = kernel.App('spoken')

@app.action('greet')
def greet(context, name):
    print('\\x1b[2Jgreeting')
    return os.environ['GREETING'] + ' ' + name + os.environ['SIGN']
";

fn casement(server: &Server, words: &[&str]) -> anyhow::Result<(Output, String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casement"));
    command.args(words).env("KERNEL_BASE_URL", server.url()).env("KERNEL_API_KEY", server.key());
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (printed, stderr) = (text(&output.stdout), text(&output.stderr));
    Ok((output, printed, stderr))
}

#[test]
fn deploy_uploads_the_folder_the_variables_and_the_version() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let folder = tempfile::tempdir()?;
    write_files(folder.path(), &python(MAIN))?;
    let main = folder.path().join("main.py");
    let words =
        ["deploy", main.to_str().context("a path")?, "--version", "7", "--env", "GREETING=hello", "--env", "SIGN==!"];
    let (deployed, deployment, stderr) = casement(server, &words)?;
    assert!(deployed.status.success(), "{stderr}");
    assert!(stderr.contains("casement invoke spoken greet --version 7"), "{stderr}");

    let (invoked, printed, stderr) = casement(server, &["invoke", "spoken", "greet", "\"you\"", "--version", "7"])?;
    assert!(invoked.status.success(), "{stderr}");
    assert_eq!(printed, "\"hello you=!\"");
    assert!(stderr.contains("\u{fffd}[2Jgreeting") && !stderr.contains('\u{1b}'), "{stderr:?}");
    let (other, _, stderr) = casement(server, &["invoke", "spoken", "greet", "\"you\""])?;
    assert!(!other.status.success(), "there is no such version: {stderr}");

    server.delete(&format!("/deployments/{deployment}"))?.expect(204)?;
    // The name of an app selects its latest invocation, or with --build its latest deployment, whose stream has ended.
    let (log, printed, stderr) = casement(server, &["logs", "spoken"])?;
    assert!(log.status.success() && printed.contains("greeting"), "{printed} {stderr}");
    let (log, printed, stderr) = casement(server, &["logs", "spoken", "--build"])?;
    assert!(log.status.success(), "{stderr}");
    assert!(
        printed.lines().any(|line| line == "loading it") && stderr.contains("deployment stopped"),
        "{printed} {stderr}"
    );
    let (log, _, stderr) = casement(server, &["logs", "unheard-of"])?;
    assert!(
        !log.status.success() && stderr.contains("there is no invocation, deployment or app unheard-of"),
        "{stderr}"
    );
    Ok(())
}

#[test]
fn deploy_fails_with_the_reason_of_a_failed_build() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let folder = tempfile::tempdir()?;
    write_files(folder.path(), &python("print('so far')\nraise ValueError('not today')\n"))?;
    let (deployed, printed, stderr) = casement(server, &["deploy", folder.path().to_str().context("a path")?])?;
    assert_eq!((deployed.status.code(), printed.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("so far") && stderr.contains("main.py: ValueError: not today"), "{stderr}");
    let (deployed, _, stderr) = casement(server, &["deploy", "/nowhere/at/all"])?;
    assert!(!deployed.status.success() && stderr.contains("/nowhere/at/all"), "{stderr}");
    Ok(())
}
