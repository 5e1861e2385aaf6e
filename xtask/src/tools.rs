//! Programs of other authors that the commands need, each in a fixed version, so that a new version needs a commit.

use std::process::Command;

use anyhow::Result;

use crate::{step, workspace};

/// Returns the program in this version. Installs it below the target folder unless it is there, with these options of
/// `cargo install`.
pub(crate) fn command(name: &str, version: &str, options: &[&str]) -> Result<Command> {
    let home = workspace::target()?.join("tools").join(format!("{name}-{version}"));
    let program = home.join("bin").join(name);
    if !program.exists() {
        let mut install = workspace::cargo();
        install.args(["install", name, "--locked", "--version", version, "--root"]).arg(&home).args(options);
        step::run_long(&format!("installing {name}"), "once, minutes", &mut install)?;
    }
    let mut command = Command::new(program);
    command.current_dir(workspace::root());
    Ok(command)
}
