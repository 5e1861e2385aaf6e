//! Installs the public clients that the end-to-end tests use, in the versions of the lock files in
//! `crates/app/tests/clients`, below cargo's target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use crate::{script_runner, step, workspace};

const LOCKS: &[&str] = &[
    "requirements.txt",
    "requirements-newest.txt",
    "requirements-browser-use.txt",
    "requirements-fuzzer.txt",
    "requirements-store.txt",
    "package.json",
    "package-lock.json",
];
/// The Python environments, with the files that list their packages.
const ENVIRONMENTS: &[(&str, &str)] = &[
    ("venv", "requirements.txt"),
    ("venv-newest", "requirements-newest.txt"),
    ("venv-browser-use", "requirements-browser-use.txt"),
    ("venv-fuzzer", "requirements-fuzzer.txt"),
    STORE,
];
const STORE: (&str, &str) = ("venv-store", "requirements-store.txt");

/// Returns the folder of the clients: `venv/bin/python` and the other environments, `node_modules`, `node`, which is the
/// Node of the script runner, and `rust-clients`. Installs them if a lock file has changed.
pub(crate) fn ensure() -> Result<PathBuf> {
    let wanted = workspace::root().join("crates/app/tests/clients");
    let home = workspace::target()?.join("clients");
    let stamp = home.join("installed");
    let locks = read_locks(&wanted)?;
    // The build needs a processor for minutes, and the installation the network.
    let (built, installed) = thread::scope(|scope| {
        let building = scope.spawn(|| build_rust(&wanted.join("rust")));
        let is_installed = fs::read_to_string(&stamp).is_ok_and(|installed| installed == locks);
        let installed = if is_installed { Ok(()) } else { install(&wanted, &home) };
        (building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), installed)
    });
    installed?;
    // Written last, so that an interrupted installation does not count as complete.
    fs::write(&stamp, locks).with_context(|| format!("cannot write {}", stamp.display()))?;
    fs::copy(built?, home.join("rust-clients")).context("cannot copy the Rust clients")?;
    Ok(home)
}

/// Installs the S3-compatible store alone, if it is missing. Returns the folder of the clients.
pub(crate) fn ensure_store() -> Result<PathBuf> {
    let home = workspace::target()?.join("clients");
    let (environment, packages) = STORE;
    if !home.join(environment).join("bin/weed").exists() {
        fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let list = workspace::root().join("crates/app/tests/clients").join(packages);
        fs::copy(list, home.join(packages)).with_context(|| format!("cannot copy {packages}"))?;
        install_python(&home, environment, packages)?;
    }
    Ok(home)
}

fn install(wanted: &Path, home: &Path) -> Result<()> {
    if home.exists() {
        fs::remove_dir_all(home).with_context(|| format!("cannot remove the old clients in {}", home.display()))?;
    }
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    for name in LOCKS {
        fs::copy(wanted.join(name), home.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    for (environment, packages) in ENVIRONMENTS {
        install_python(home, environment, packages)?;
    }
    install_node(home)
}

fn read_locks(folder: &Path) -> Result<String> {
    let read = |name: &&str| fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {name}"));
    LOCKS.iter().map(read).collect()
}

/// Nothing is compiled at the installation: programs import a small part of the packages, and Python compiles that part
/// when it is imported first.
fn install_python(home: &Path, environment: &str, packages: &str) -> Result<()> {
    let mut venv = Command::new("python3");
    step::run("making a Python environment", venv.args(["-m", "venv", environment]).current_dir(home))?;
    let mut pip = Command::new(home.join(environment).join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]);
    step::run("installing the Python clients", pip.args(["--requirement", packages]).current_dir(home))
}

fn install_node(home: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    // Runs no scripts of packages, because none is needed: the browser is the one of the machine.
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    step::run("installing the JavaScript clients", npm.current_dir(home))?;
    // Debian's Node is older than some clients allow.
    let node = Path::new("../runner").join(script_runner::NODE);
    std::os::unix::fs::symlink(node, home.join("node")).context("cannot link Node")
}

/// Builds the program with the Rust clients; returns its path. It is no member of the workspace: its crates are no
/// dependencies of ours.
fn build_rust(source: &Path) -> Result<PathBuf> {
    let target = workspace::target()?.join("rust-clients");
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--locked", "--quiet"]).arg("--target-dir").arg(&target).current_dir(source);
    step::run("building the Rust clients", &mut cargo)?;
    Ok(target.join("debug/rust-clients"))
}
