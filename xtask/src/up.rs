//! `cargo xtask up`: from a fresh clone to a running server.

use std::os::unix::process::CommandExt;
use std::process::Command;

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

pub(crate) fn run(options: &Options) -> Result<()> {
    packages::ensure(&[packages::RUN])?;
    script_runner::ensure()?;
    let mut build = workspace::cargo();
    build.args(["build", "--locked", "--package", "casement"]);
    if !options.dev {
        build.args(["--profile", "up"]);
    }
    step::run("building (the first time takes minutes)", &mut build)?;

    let profile = if options.dev { "debug" } else { "up" };
    let program = workspace::target()?.join(profile).join("casement");
    let mut serve = Command::new(&program);
    serve.arg("serve").args(&options.serve);
    eprintln!("==> starting {} serve {}", program.display(), options.serve.join(" "));
    // The server replaces this process, so that it receives Ctrl-C and a supervisor's signals directly.
    Err(anyhow!(serve.exec()).context(format!("cannot start {}", program.display())))
}
