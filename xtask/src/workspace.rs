//! The paths of the checkout and its build output.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;

/// Returns the top folder of the checkout that this program was built from.
pub(crate) fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// Returns the cargo that started this program, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut cargo = Command::new(program);
    cargo.current_dir(root());
    // Variables of this package are removed, because build scripts that watch them would run again.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_package(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    cargo
}

fn is_of_this_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_NAME", "CARGO_CRATE_NAME"].iter().any(|of| variable.starts_with(of))
}

/// Returns cargo's target folder; respects `CARGO_TARGET_DIR` and cargo's configuration.
pub(crate) fn target() -> Result<PathBuf> {
    let metadata =
        MetadataCommand::new().current_dir(root()).no_deps().exec().context("cannot ask cargo where it builds")?;
    Ok(metadata.target_directory.into_std_path_buf())
}
