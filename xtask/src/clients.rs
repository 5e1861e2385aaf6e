//! Installs the public clients that the end-to-end tests use, in the versions of the lock files in
//! `crates/app/tests/clients`, below cargo's target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{step, workspace};

const LOCKS: &[&str] = &[
    "requirements.txt",
    "requirements-newest.txt",
    "requirements-fuzzer.txt",
    "requirements-store.txt",
    "package.json",
    "package-lock.json",
];
/// The Python environments, with the files that list their packages.
const ENVIRONMENTS: &[(&str, &str)] = &[
    ("venv", "requirements.txt"),
    ("venv-newest", "requirements-newest.txt"),
    ("venv-fuzzer", "requirements-fuzzer.txt"),
    ("venv-store", "requirements-store.txt"),
];

/// Returns the folder of the clients: `venv/bin/python`, `venv-newest/bin/python` and `node_modules`. Installs them if a lock file has changed.
pub(crate) fn ensure() -> Result<PathBuf> {
    let wanted = workspace::root().join("crates/app/tests/clients");
    let home = workspace::target()?.join("clients");
    let stamp = home.join("installed");
    let locks = read_locks(&wanted)?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == locks) {
        return Ok(home);
    }
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("cannot remove the old clients in {}", home.display()))?;
    }
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    for name in LOCKS {
        fs::copy(wanted.join(name), home.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    for (environment, packages) in ENVIRONMENTS {
        install_python(&home, environment, packages)?;
    }
    install_node(&home)?;
    // Written last, so that an interrupted installation does not count as complete.
    fs::write(&stamp, locks).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(home)
}

fn read_locks(folder: &Path) -> Result<String> {
    let read = |name: &&str| fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {name}"));
    LOCKS.iter().map(read).collect()
}

fn install_python(home: &Path, environment: &str, packages: &str) -> Result<()> {
    let mut venv = Command::new("python3");
    step::run("making a Python environment", venv.args(["-m", "venv", environment]).current_dir(home))?;
    let mut pip = Command::new(home.join(environment).join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", packages]);
    step::run("installing the Python clients", pip.current_dir(home))
}

fn install_node(home: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    // Runs no scripts of packages, because none is needed: the browser is the one of the machine.
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    step::run("installing the JavaScript clients", npm.current_dir(home))
}
