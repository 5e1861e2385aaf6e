//! Unpacks the reverse proxies that the end-to-end tests start, below cargo's target folder. Debian's packages are not
//! installed, because they would start servers on the ports 80 and 443.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{packages, step, workspace};

/// The programs and their packages, as the path below the folder.
const PROGRAMS: [(&str, &str); 2] = [("usr/sbin/nginx", "nginx"), ("usr/bin/caddy", "caddy")];

/// Returns the folder with the programs.
pub(crate) fn ensure() -> Result<PathBuf> {
    let home = workspace::target()?.join("reverse-proxies");
    let missing = |(program, _): &&(&str, &str)| !home.join(program).is_file();
    let packages: Vec<&str> = PROGRAMS.iter().filter(missing).map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(home);
    }
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    packages::refresh_lists()?;
    let mut download = Command::new("apt-get");
    download.args(["-q", "download"]).args(&packages).current_dir(&home);
    step::run("downloading nginx and Caddy", &mut download)?;
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
