//! The test programs: what cargo has built, and the tests of each.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Artifact, Message};

use crate::{step, workspace};

/// A program with tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// The package that it belongs to.
    pub(super) package: String,
    /// Its source file, below the folder of the package.
    pub(super) source: String,
    /// The folder of the package.
    pub(super) folder: PathBuf,
    /// The file to start.
    pub(super) executable: PathBuf,
}

impl Program {
    /// Returns what a person calls it: `casement-http tests/all.rs`.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.package, self.source)
    }

    /// Returns the command that starts it as `cargo test` does: in the folder of its package.
    pub(super) fn command(&self) -> Command {
        let mut program = Command::new(&self.executable);
        workspace::remove_own_variables(&mut program);
        program.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        program
    }

    /// Returns the names of all its tests.
    ///
    /// # Errors
    /// If it does not start or does not answer.
    pub(super) fn tests(&self) -> Result<Vec<String>> {
        let mut list = self.command();
        let output = list.args(["--list", "--format", "terse"]).output();
        let output = output.with_context(|| format!("cannot start {}", self.executable.display()))?;
        ensure!(output.status.success(), "{} does not list its tests: {}", self.title(), output.status);
        Ok(listed(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Returns the test program that cargo reports here, if it reports one.
    fn reported(artifact: Artifact, packages: &[workspace::Package]) -> Option<Self> {
        let executable = artifact.executable.filter(|_| artifact.profile.test)?.into_std_path_buf();
        let folder = artifact.manifest_path.parent()?;
        let package = packages.iter().find(|package| package.folder == folder)?;
        let source = artifact.target.src_path.strip_prefix(folder).ok()?.to_string();
        Some(Self { package: package.name.clone(), source, folder: folder.into(), executable })
    }
}

fn listed(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Builds the tests with this `cargo test`. Returns their programs.
///
/// # Errors
/// If the build fails.
pub(super) fn build(cargo: &mut Command) -> Result<Vec<Program>> {
    let packages = workspace::packages()?;
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    step::run_reading("building the tests", cargo, |messages| {
        let mut programs = Vec::new();
        for message in Message::parse_stream(BufReader::new(messages)) {
            if let Message::CompilerArtifact(artifact) = message.context("cargo's messages end early")? {
                programs.extend(Program::reported(artifact, &packages));
            }
        }
        Ok(programs)
    })
}

/// Returns the full name of each package that is given by its name or by that of its folder.
///
/// # Errors
/// If there is no such package.
pub(super) fn full_names(given: &[String]) -> Result<Vec<String>> {
    let packages = workspace::packages()?;
    let full = |name: &String| {
        let is_meant =
            |package: &&workspace::Package| package.name == *name || package.folder.file_name() == Some(name);
        let found = packages.iter().find(is_meant).map(|package| package.name.clone());
        found.with_context(|| {
            let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
            format!("there is no package {name}; there are {}", names.join(" "))
        })
    };
    given.iter().map(full).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_may_be_named_by_its_folder() {
        let given = ["app", "http", "casement-http", "xtask"].map(str::to_owned);
        let full = full_names(&given).expect("they exist");
        assert_eq!(full, ["casement", "casement-http", "casement-http", "xtask"]);
        let error = full_names(&["nothing".to_owned()]).expect_err("it does not exist").to_string();
        assert!(error.starts_with("there is no package nothing; there are casement"), "{error}");
    }

    #[test]
    fn a_list_of_tests_is_read_without_what_is_no_test() {
        assert_eq!(listed("all::one: test\nall::fast: benchmark\nall::two: test\n"), ["all::one", "all::two"]);
    }
}
