//! Measures times and sizes of Casement, as ratios to reference work on the same machine at the same time:
//! `cargo xtask bench`.
//!
//! It uses the built program like a caller. `docs/benchmarks.md` explains the table.

mod acquire;
mod apps;
mod client;
mod cold;
mod commits;
mod computer;
mod files;
mod grid;
mod hop;
mod machine;
mod memory;
mod nodes;
mod organization;
mod profiles;
mod relay;
mod samples;
mod scripts;
mod spares;
mod table;
mod telemetry;
mod waiters;

use std::io::Write as _;

use anyhow::{Context as _, ensure};

use self::table::Table;

/// A part of the table, with a server of its own.
type Part = (&'static str, fn(&mut Table) -> anyhow::Result<()>);

const PARTS: &[Part] = &[
    ("acquire", acquire::measure),
    ("spares", spares::measure),
    ("cold", cold::measure),
    ("relay", relay::measure),
    ("memory", memory::measure),
    ("waiters", waiters::measure),
    ("hop", hop::measure),
    ("nodes", nodes::measure),
    ("grid", grid::measure),
    ("computer", computer::measure),
    ("scripts", scripts::measure),
    ("files", files::measure),
    ("organization", organization::measure),
    ("profiles", profiles::measure),
    ("telemetry", telemetry::measure),
    ("apps", apps::measure),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo passes this argument for measurements. `cargo test --all-targets` starts this program without it.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let parts: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
    ensure!(wanted.iter().all(|name| parts.contains(&name.as_str())), "the parts are {}", parts.join(", "));
    machine::raise_open_files();
    let before = machine::describe()?;
    let mut table = Table::default();
    for (name, measure) in PARTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name)) {
        progress(&format!("measuring: {name}"));
        measure(&mut table).with_context(|| format!("the part `{name}`"))?;
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{before}\n\n{table}")?;
    Ok(out.flush()?)
}

/// Prints the progress.
pub(crate) fn progress(what: &str) {
    eprintln!("==> {what}");
}
