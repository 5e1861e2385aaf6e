//! The commands for people who deploy programs, beside what `app_examples` shows of them.

use std::process::{Command, Output};

use anyhow::Context as _;

use super::programs::{python, write_files};
use super::support::{Server, Shared};

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
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    Ok((output, printed, said))
}

#[test]
fn a_file_is_deployed_with_its_folder_its_variables_and_its_version() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let folder = tempfile::tempdir()?;
    write_files(folder.path(), &python(MAIN))?;
    let main = folder.path().join("main.py");
    let words =
        ["deploy", main.to_str().context("a path")?, "--version", "7", "--env", "GREETING=hello", "--env", "SIGN==!"];
    let (deployed, deployment, said) = casement(server, &words)?;
    assert!(deployed.status.success(), "{said}");
    assert!(said.contains("casement invoke spoken greet --version 7"), "{said}");

    let (invoked, printed, said) = casement(server, &["invoke", "spoken", "greet", "\"you\"", "--version", "7"])?;
    assert!(invoked.status.success(), "{said}");
    assert_eq!(printed, "\"hello you=!\"");
    assert!(said.contains("\u{fffd}[2Jgreeting") && !said.contains('\u{1b}'), "{said:?}");
    let (other, _, said) = casement(server, &["invoke", "spoken", "greet", "\"you\""])?;
    assert!(!other.status.success(), "there is no such version: {said}");

    server.delete(&format!("/deployments/{deployment}"))?.expect(204)?;
    // Of an app, its latest deployment; its stream is at its end now.
    let (log, printed, said) = casement(server, &["logs", "spoken"])?;
    assert!(log.status.success(), "{said}");
    assert!(
        printed.lines().any(|line| line == "loading it") && said.contains("deployment stopped"),
        "{printed} {said}"
    );
    let (log, _, said) = casement(server, &["logs", "unheard-of"])?;
    assert!(!log.status.success() && said.contains("there is no invocation, deployment or app unheard-of"), "{said}");
    Ok(())
}

#[test]
fn a_build_that_fails_is_a_command_that_fails_and_says_why() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let folder = tempfile::tempdir()?;
    write_files(folder.path(), &python("print('so far')\nraise ValueError('not today')\n"))?;
    let (deployed, printed, said) = casement(server, &["deploy", folder.path().to_str().context("a path")?])?;
    assert_eq!((deployed.status.code(), printed.as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("so far") && said.contains("main.py: ValueError: not today"), "{said}");
    let (deployed, _, said) = casement(server, &["deploy", "/nowhere/at/all"])?;
    assert!(!deployed.status.success() && said.contains("/nowhere/at/all"), "{said}");
    Ok(())
}
