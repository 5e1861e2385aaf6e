//! The paths of the checkout and of its build output.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use cargo_metadata::camino::Utf8PathBuf;

/// Returns the top folder of the checkout that this program was built from.
pub(crate) fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// Returns the cargo that started this program, so that its toolchain is used.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut cargo = Command::new(program);
    cargo.current_dir(root());
    // Build scripts that watch them would run again.
    remove_own_variables(&mut cargo);
    cargo
}

/// Removes the variables of this package.
pub(crate) fn remove_own_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
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

/// A member of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: Utf8PathBuf,
}

/// Returns all members.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let metadata =
        MetadataCommand::new().current_dir(root()).no_deps().exec().context("cannot ask cargo for its packages")?;
    let package = |one: &cargo_metadata::Package| {
        let folder = one.manifest_path.parent().map(ToOwned::to_owned).unwrap_or_default();
        Package { name: one.name.to_string(), folder }
    };
    Ok(metadata.workspace_packages().into_iter().map(package).collect())
}

/// Returns the folders of all members.
pub(crate) fn member_folders() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("the workspace has a folder of crates");
    let mut folders: Vec<PathBuf> = crates.map(|entry| entry.expect("a readable folder").path()).collect();
    folders.push(root().join("xtask"));
    folders
}

/// Returns the Rust sources of all members.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    member_folders().iter().for_each(|folder| files(folder, "rs", &mut found));
    found
}

/// Adds the files below a folder that have this extension, without build output and installed packages.
pub(crate) fn files(below: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(below) else { return };
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        if path.is_dir()
            && path.file_name() != Some("target".as_ref())
            && path.file_name() != Some("node_modules".as_ref())
        {
            files(&path, extension, found);
        } else if path.extension() == Some(extension.as_ref()) {
            found.push(path);
        }
    }
}
