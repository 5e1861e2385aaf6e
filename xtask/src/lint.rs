//! `cargo xtask lint`: the automatic checks.

use std::process::Command;

use anyhow::Result;

use crate::{module_cycles, step, tools, vocabulary, workspace};

/// The version of cargo-deny for CI and developers, so that a new rule needs a commit.
const CARGO_DENY: &str = "0.20.2";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Format, vocabulary, cycles of files and clippy only
    #[arg(long)]
    quick: bool,
    /// Format, vocabulary and cycles of files only, which need no build
    #[arg(long, conflicts_with = "quick")]
    text: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    step::run("format", workspace::cargo().args(["fmt", "--all", "--check"]))?;
    vocabulary::check()?;
    module_cycles::check()?;
    if options.text {
        return Ok(());
    }
    let mut clippy = workspace::cargo();
    clippy.args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
    step::run("clippy", &mut clippy)?;
    if options.quick {
        return Ok(());
    }
    let mut doc = workspace::cargo();
    doc.args(["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"]);
    step::run("documentation", doc.env("RUSTDOCFLAGS", "--deny warnings"))?;
    let checks = ["check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    step::run("dependencies", deny()?.current_dir(workspace::root()).args(checks))
}

/// Returns cargo-deny: the one on the `PATH`, or one that is installed below the target folder.
fn deny() -> Result<Command> {
    if step::succeeds(Command::new("cargo-deny").arg("--version")) {
        return Ok(Command::new("cargo-deny"));
    }
    tools::command("cargo-deny", CARGO_DENY, &[])
}
