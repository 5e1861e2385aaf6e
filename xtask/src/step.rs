//! Runs commands: prints the title, the expected and the real duration, and the result of each.

use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Runs a command of a few seconds with its output on the terminal; fails if the command does.
pub(crate) fn run(title: &str, command: &mut Command) -> Result<()> {
    eprintln!("==> {title}: {}", line(command));
    finish(title, command)
}

/// Does the same with a command that takes longer, and first prints how long.
pub(crate) fn run_long(title: &str, expected: &str, command: &mut Command) -> Result<()> {
    eprintln!("{}", announcement(title, expected, command));
    finish(title, command)
}

/// Does the same as [`run`] with a command whose standard output is passed to `read`.
pub(crate) fn run_reading<T>(
    title: &str,
    command: &mut Command,
    read: impl FnOnce(ChildStdout) -> Result<T>,
) -> Result<T> {
    eprintln!("==> {title}: {}", line(command));
    let started = Instant::now();
    let mut child =
        ending_with_this(command).stdout(Stdio::piped()).spawn().with_context(|| cannot_start(title, command))?;
    let output = child.stdout.take().with_context(|| format!("{title}: no output"))?;
    let result = read(output);
    let status = child.wait().with_context(|| format!("{title}: cannot wait for its end"))?;
    ended(title, command, status, started)?;
    result
}

/// Returns the command as one that the system kills when the thread that starts it ends: if this program is killed, no
/// build and no test program stays behind. Ctrl-C reaches all processes of the terminal anyway.
pub(crate) fn ending_with_this(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

fn announcement(title: &str, expected: &str, command: &Command) -> String {
    format!("==> {title} ({expected}): {}", line(command))
}

fn finish(title: &str, command: &mut Command) -> Result<()> {
    let started = Instant::now();
    let status = command.status().with_context(|| cannot_start(title, command))?;
    ended(title, command, status, started)
}

fn cannot_start(title: &str, command: &Command) -> String {
    format!("{title}: cannot start `{}`", line(command))
}

/// Prints the result of a command; fails if the command has.
fn ended(title: &str, command: &Command, status: ExitStatus, started: Instant) -> Result<()> {
    eprintln!("==> {title}: {} after {}", outcome(status), readable(started.elapsed()));
    if !status.success() {
        bail!("{title}: `{}` ended with {status}", line(command));
    }
    Ok(())
}

/// Returns a duration as a person reads it: `3.2 s`, `11 min 5 s`.
pub(crate) fn readable(duration: Duration) -> String {
    match duration.as_secs() {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_from_a_minute_on_are_in_minutes() {
        assert_eq!(readable(Duration::from_millis(3_240)), "3.2 s");
        assert_eq!(readable(Duration::from_secs(60)), "1 min 0 s");
        assert_eq!(readable(Duration::from_secs(665)), "11 min 5 s");
    }

    #[test]
    fn a_long_step_says_first_what_it_does_and_how_long_it_takes() {
        let mut command = Command::new("cargo");
        let text = announcement("building", "about 10 minutes on 2 cores", command.arg("build"));
        assert_eq!(text, "==> building (about 10 minutes on 2 cores): cargo build");
    }

    #[test]
    fn a_failed_command_is_an_error_with_its_title_and_its_status() {
        let error = run_long("building", "about a second", &mut Command::new("false")).expect_err("it fails");
        assert_eq!(error.to_string(), "building: `false` ended with exit status: 1");
    }
}
