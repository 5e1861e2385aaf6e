//! `cargo xtask up`: from a fresh clone to a running server.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, anyhow};

use crate::{packages, script_runner, step, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build without optimisation: the build is faster, the program slower
    #[arg(long)]
    dev: bool,
    /// Arguments for `casement serve`
    #[arg(last = true, value_name = "ARGUMENT")]
    serve: Vec<String>,
}

/// What is printed first: the steps, and the time of them all.
const PLAN: &str = "==> installs missing packages, installs the script runner, builds Casement and starts it. The first time takes \
    7 to 12 minutes on 2 cores, later times seconds";
const BUILD_TIME: &str = "the first time 7 to 12 minutes on 2 cores, later seconds";
const BUILD_TIME_DEV: &str = "the first time several minutes on 2 cores, later seconds";

pub(crate) fn run(options: &Options) -> Result<()> {
    eprintln!("{PLAN}");
    let started = Instant::now();
    packages::ensure(&[packages::RUN, packages::FONTS])?;
    script_runner::ensure()?;
    let mut build = workspace::cargo();
    build.args(["build", "--locked", "--package", "casement"]);
    self::build(&mut build, options.dev)?;
    eprintln!("==> everything is installed and built after {}", step::readable(started.elapsed()));

    let program = workspace::target()?.join(profile(options.dev)).join("casement");
    let mut serve = Command::new(&program);
    serve.arg("serve").args(&options.serve);
    let line = [&["serve".to_owned()], options.serve.as_slice()].concat().join(" ");
    eprintln!("==> starting (the first time about 10 s, later 2 s): {} {line}", program.display());
    // The server replaces this process, so that it receives Ctrl-C and a supervisor's signals directly.
    Err(anyhow!(serve.exec()).context(format!("cannot start {}", program.display())))
}

/// Runs a command of cargo that builds the program.
pub(crate) fn build(command: &mut Command, dev: bool) -> Result<()> {
    if !dev {
        command.args(["--profile", "up"]);
    }
    step::run_long("building", if dev { BUILD_TIME_DEV } else { BUILD_TIME }, command)
}

/// Returns the folder of the built program below the target folder.
pub(crate) fn profile(dev: bool) -> &'static str {
    if dev { "debug" } else { "up" }
}
