//! `cargo xtask bench`: measures speed and size as ratios; see docs/benchmarks.md.

use std::path::PathBuf;

use anyhow::Result;

use crate::{clients, packages, script_runner, step, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these parts of the table: acquire, spares, cold, relay, memory, waiters, hop, nodes, grid, computer, scripts,
    /// files, organization, profiles, telemetry, apps
    #[arg(value_name = "PART")]
    parts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    packages::ensure(&[packages::RUN])?;
    script_runner::ensure()?;
    let needs_clients = options.parts.is_empty() || options.parts.iter().any(|part| part == "grid");
    let clients = needs_clients.then(grid_requirements).transpose()?;
    let mut cargo = workspace::cargo();
    cargo.args(["bench", "--locked", "--package", "casement", "--bench", "ratios", "--"]).args(&options.parts);
    cargo.envs(clients.map(|clients| ("CASEMENT_TEST_CLIENTS", clients)));
    step::run_long("measuring", "after a build with optimisation about 10 minutes on a quiet machine", &mut cargo)
}

/// Installs what the part `grid` needs. Returns the folder of the public clients, which has the Grid.
fn grid_requirements() -> Result<PathBuf> {
    packages::ensure(&[packages::TEST])?;
    clients::ensure()
}
