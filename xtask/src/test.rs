//! `cargo xtask test`: runs all tests, also on a fresh machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, available_parallelism};

use anyhow::Result;

use crate::{client_methods, clients, packages, reverse_proxies, script_runner, step, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only the tests of this package; may be given several times
    #[arg(short, long, value_name = "PACKAGE")]
    package: Vec<String>,
    /// Only the tests whose name contains one of these
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

impl Options {
    /// The tests of one package whose names contain one of these.
    pub(crate) fn of(package: &str, filter: &[&str]) -> Self {
        Self { package: vec![package.to_owned()], filter: filter.iter().map(|&part| part.to_owned()).collect() }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !options.package.is_empty() || !options.filter.is_empty() {
        return run_recording(options, None);
    }
    let folder = client_methods::new_folder()?;
    run_recording(options, Some(&folder))?;
    client_methods::check(&folder)
}

/// Runs tests, which put records of the called methods of the API clients into `folder`, if one is given.
pub(crate) fn run_recording(options: &Options, folder: Option<&Path>) -> Result<()> {
    // Building needs the processors and installing the network, so they run concurrently.
    let (built, installed) = thread::scope(|scope| {
        let building = scope.spawn(|| step::run("building the tests", cargo_test(options).arg("--no-run")));
        let installed = install();
        (building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), installed)
    });
    let (clients, reverse_proxies) = installed?;
    built?;
    let mut cargo = cargo_test(options);
    cargo.arg("--").args(&options.filter);
    cargo.env("CASEMENT_TEST_CLIENTS", clients);
    cargo.env("CASEMENT_TEST_REVERSE_PROXIES", reverse_proxies);
    if let Some(folder) = folder {
        cargo.env(client_methods::FOLDER, folder);
    }
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        cargo.env("RUST_TEST_THREADS", threads().to_string());
    }
    step::run("testing", &mut cargo)
}

/// Installs the requirements of the tests. Returns the folders of the public clients and of the reverse proxies.
fn install() -> Result<(PathBuf, PathBuf)> {
    packages::ensure(&[packages::RUN, packages::TEST])?;
    let clients = clients::ensure()?;
    script_runner::ensure()?;
    Ok((clients, reverse_proxies::ensure()?))
}

/// Returns `cargo test` for the chosen packages.
fn cargo_test(options: &Options) -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--locked", "--no-fail-fast"]);
    if options.package.is_empty() {
        cargo.arg("--workspace");
    }
    for package in &options.package {
        cargo.args(["--package", package]);
    }
    cargo
}

/// Returns the number of tests that run at a time: one more than cores, because tests wait for a third of their time.
/// Most tests start Chromium, and each start uses a core for a second: many more tests than cores make all of them
/// slower, and timeouts that suffice for one browser are too short for ten.
fn threads() -> usize {
    (available_parallelism().map_or(2, usize::from) + 1).clamp(2, 4)
}
