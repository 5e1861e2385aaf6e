//! `casement doctor`: whether this host gives what Casement needs, and what to do where it does not.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use casement_egress::{Egress, Limits, Rules, SystemResolver};
use casement_postgres::cluster::Binaries;
use casement_sandbox::Check;
use casement_webdriver::{Engine, EngineConfig, check_script_runner, check_versions};

use crate::egress::WaysOut;
use crate::settings::DataDir;

/// One thing that was looked at.
struct Finding {
    name: String,
    ok: bool,
    detail: String,
    remedy: Option<String>,
}

const PROGRAMS: [(&str, &str, &str); 2] = [("X server", "Xvfb", "xvfb"), ("ffmpeg", "ffmpeg", "ffmpeg")];
const LEAST_DISK_BYTES: u64 = 2 * 1024 * 1024 * 1024;
const LEAST_OPEN_FILES: u64 = 8192;
const SCRIPT_RUNNER_REMEDY: &str = "cargo xtask up installs it in target/runner; elsewhere, copy that folder to ../lib/casement/runner \
    beside the program, readable for all, or give --script-runner";

/// Runs the command; fails if anything is missing.
pub(crate) async fn run(data_dir: DataDir) -> anyhow::Result<()> {
    let findings = look(&data_dir.path()?).await?;
    let mut out = std::io::stdout();
    for finding in &findings {
        let mark = if finding.ok { "ok     " } else { "MISSING" };
        writeln!(out, "{mark}  {}: {}", finding.name, finding.detail)?;
        if let Some(remedy) = &finding.remedy {
            writeln!(out, "         -> {remedy}")?;
        }
    }
    match findings.iter().filter(|finding| !finding.ok).count() {
        0 => Ok(()),
        missing => bail!("{missing} of {} things are missing", findings.len()),
    }
}

async fn look(data_dir: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = check_versions().await.into_iter().map(Finding::from).collect();
    findings.extend(PROGRAMS.into_iter().map(|(name, file, package)| program(name, file, package)));
    match sandbox_checks(data_dir).await {
        Ok(checks) => findings.extend(checks.into_iter().map(Finding::from)),
        Err(error) => findings.push(finding(
            "sandboxes",
            Err(format!("{error:#}")),
            "mend what is missing above, then look again",
        )),
    }
    findings.push(finding("script runner", script_runner(data_dir), SCRIPT_RUNNER_REMEDY));
    findings.push(finding(
        "PostgreSQL",
        Binaries::newest()
            .map(|found| format!("{} in {}", found.major, found.dir.display()))
            .map_err(|error| error.to_string()),
        "install the package postgresql, or give --database-url",
    ));
    findings.push(finding("disk", disk(data_dir), "make room, or give another --data-dir"));
    findings.push(finding(
        "open files",
        open_files(),
        "raise the limit: ulimit -n 65536, or LimitNOFILE= of the service",
    ));
    Ok(findings)
}

fn finding(name: &str, found: Result<String, String>, remedy: &str) -> Finding {
    let (ok, detail) = match found {
        Ok(detail) => (true, detail),
        Err(detail) => (false, detail),
    };
    Finding { name: name.to_owned(), ok, detail, remedy: (!ok).then(|| remedy.to_owned()) }
}

/// A program, with the package that Debian has it in.
fn program(name: &str, file: &str, package: &str) -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin".into()]);
    let found = places.map(|place| place.join(file)).find(|path| path.is_file());
    let found = found.map(|path| path.display().to_string()).ok_or_else(|| "not found".to_owned());
    finding(name, found, &format!("install the package {package}"))
}

async fn sandbox_checks(data_dir: &Path) -> anyhow::Result<Vec<Check>> {
    let config = EngineConfig::discover(data_dir.to_owned())?;
    let egress = Egress::new(Rules::default(), Arc::new(SystemResolver::default()), Limits::default());
    Ok(Engine::new(config, Arc::new(WaysOut::new(egress))).await?.checks().await)
}

impl From<Check> for Finding {
    fn from(check: Check) -> Self {
        let Check { name, ok, detail, remedy } = check;
        Self { name: name.to_owned(), ok, detail, remedy }
    }
}

/// Where it is, as the server would find it.
fn script_runner(data_dir: &Path) -> Result<String, String> {
    let folder = match std::env::var_os("CASEMENT_SCRIPT_RUNNER") {
        Some(folder) => PathBuf::from(folder),
        None => EngineConfig::discover(data_dir.to_owned())
            .map_err(|error| error.to_string())?
            .script_runner
            .ok_or_else(|| "not found beside the program, or not usable by sandboxes".to_owned())?,
    };
    check_script_runner(&folder).map(|place| place.display().to_string())
}

fn disk(data_dir: &Path) -> Result<String, String> {
    let existing: PathBuf = data_dir.ancestors().find(|dir| dir.is_dir()).map_or_else(|| "/".into(), Path::to_path_buf);
    let stat = rustix::fs::statvfs(&existing).map_err(|error| format!("{}: {error}", existing.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let text = format!("{} MiB free at {}", free / 1024 / 1024, existing.display());
    if free >= LEAST_DISK_BYTES { Ok(text) } else { Err(text) }
}

fn open_files() -> Result<String, String> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.maximum {
        Some(most) if most < LEAST_OPEN_FILES => Err(format!("at most {most}")),
        Some(most) => Ok(format!("up to {most}")),
        None => Ok("no limit".into()),
    }
}

/// Takes as many open files as are allowed: every connection and every session costs some.
pub(crate) fn raise_open_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
}
