//! Unpacks the reverse proxies that the end-to-end tests start, below cargo's target folder. Debian's packages are not
//! installed, because they would start servers on the ports 80 and 443.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{packages, step, workspace};

/// A program or library, as the path below the folder, and its package.
type Part = (&'static str, &'static str);

const PROXIES: &[Part] = &[("usr/sbin/nginx", "nginx"), ("usr/bin/caddy", "caddy")];
/// HAProxy and its libraries that a machine may lack. `{}` is the kind of processor.
const BALANCER: &[Part] = &[
    ("usr/sbin/haproxy", "haproxy"),
    ("usr/lib/{}-linux-gnu/liblua5.3.so.0", "liblua5.3-0"),
    ("usr/lib/{}-linux-gnu/libopentracing-c-wrapper.so.0", "libopentracing-c-wrapper0"),
    ("usr/lib/{}-linux-gnu/libopentracing.so.1", "libopentracing1"),
];

/// Returns the folder with all programs.
pub(crate) fn ensure() -> Result<PathBuf> {
    ensure_parts(&[PROXIES, BALANCER].concat())
}

/// Returns the folder with HAProxy.
pub(crate) fn ensure_balancer() -> Result<PathBuf> {
    ensure_parts(BALANCER)
}

fn ensure_parts(parts: &[Part]) -> Result<PathBuf> {
    let home = workspace::target()?.join("reverse-proxies");
    let missing = |(path, _): &&Part| !home.join(path.replace("{}", std::env::consts::ARCH)).exists();
    let packages: Vec<&str> = parts.iter().filter(missing).map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(home);
    }
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    packages::refresh_lists()?;
    let mut download = Command::new("apt-get");
    download.args(["-q", "download"]).args(&packages).current_dir(&home);
    step::run("downloading reverse proxies", &mut download)?;
    for entry in fs::read_dir(&home).with_context(|| format!("cannot list {}", home.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            unpack(&path, &home)?;
        }
    }
    Ok(home)
}

fn unpack(package: &Path, home: &Path) -> Result<()> {
    step::run("unpacking a reverse proxy", Command::new("dpkg-deb").arg("--extract").arg(package).arg(home))?;
    fs::remove_file(package).with_context(|| format!("cannot remove {}", package.display()))
}
