//! `cargo xtask bench`: measures speed and size as ratios; see docs/benchmarks.md.

use anyhow::Result;

use crate::{packages, script_runner, step, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these parts of the table: acquire, spares, cold, relay, memory, waiters, hop, nodes, computer, scripts, files,
    /// organization, profiles, telemetry, apps
    #[arg(value_name = "PART")]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    packages::ensure(&[packages::RUN])?;
    script_runner::ensure()?;
    let mut cargo = workspace::cargo();
    cargo.args(["bench", "--locked", "--package", "casement", "--bench", "ratios", "--"]).args(&options.parts);
    step::run_long("measuring", "after a build with optimisation about 10 minutes on a quiet machine", &mut cargo)
}
