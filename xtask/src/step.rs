//! Runs commands: prints the title, the duration and the result of each.

use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Runs the command with its output on the terminal; fails if the command does.
pub(crate) fn run(title: &str, command: &mut Command) -> Result<()> {
    let status = status(title, command)?;
    if !status.success() {
        bail!("{title}: `{}` ended with {status}", line(command));
    }
    Ok(())
}

/// Runs the command with its output on the terminal and returns its status.
pub(crate) fn status(title: &str, command: &mut Command) -> Result<ExitStatus> {
    eprintln!("==> {title}: {}", line(command));
    let started = Instant::now();
    let status = command.status().with_context(|| format!("{title}: cannot start `{}`", line(command)))?;
    eprintln!("==> {title}: {} after {:.1} s", outcome(status), started.elapsed().as_secs_f64());
    Ok(status)
}

/// Runs the command without output; returns true if it succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn outcome(status: ExitStatus) -> &'static str {
    if status.success() { "done" } else { "failed" }
}

/// Returns the command as a person would type it. The arguments contain no secrets.
fn line(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
