//! `casement doctor`: checks the host's requirements and names remedies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use casement_chromium::{Channel, Engine, EngineConfig, check_script_runner, check_versions};
use casement_domain::browser::{BrowserEngine as _, Launch, Shape};
use casement_domain::{BrowserId, Clock as _, IdSource as _};
use casement_egress::{Egress, Limits, Rules, SystemResolver};
use casement_postgres::cluster::Binaries;
use casement_postgres::{DatabaseConfig, ensure_suitable};
use casement_sandbox::Check;
use casement_webdriver::{Connect, check};

use crate::browser_policy::DeniedLog;
use crate::causes::with_causes;
use crate::data_dir;
use crate::egress::SandboxEgress;
use crate::engines::{Trial, try_each};
use crate::fonts;
use crate::settings::DoctorSettings;
use crate::system::System;

/// The result of one check.
struct Finding {
    name: String,
    ok: bool,
    detail: String,
    /// What to do; also of a check that is ok, if something that a server can do without is not there.
    remedy: Option<String>,
}

const PROGRAMS: [(&str, &str, &str); 2] = [("X server", "Xvfb", "xvfb"), ("ffmpeg", "ffmpeg", "ffmpeg")];
/// The timeout of starting and driving a browser on a slow machine.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(90);
/// The idle timeout of a browser that could not be ended.
const ABANDONED_SECONDS: u32 = 120;
const MIN_DISK_BYTES: u64 = 2 * 1024 * 1024 * 1024;
const MIN_OPEN_FILES: u64 = 8192;
const SCRIPT_RUNNER_REMEDY: &str = "cargo xtask up installs it in target/runner; elsewhere, copy that folder to ../lib/casement/runner \
    beside the program, readable for all, or give --script-runner";

/// What is said of a kernel in whose sandboxes `navigator.onLine` is false.
const NO_DEVICE: &str =
    "; pages find themselves offline, because this kernel makes no network devices in sandboxes (modprobe veth)";

/// Runs the command; fails if a requirement is missing.
pub(crate) async fn run(settings: DoctorSettings) -> anyhow::Result<()> {
    let findings = run_checks(&settings).await?;
    for finding in &findings {
        let mark = match finding {
            Finding { ok: false, .. } => "MISSING",
            Finding { remedy: Some(_), .. } => "lacking",
            _ => "ok     ",
        };
        let remedy = finding.remedy.as_ref().map_or_else(String::new, |remedy| format!("         -> {remedy}\n"));
        casement_cli::write_out(format!("{mark}  {}: {}\n{remedy}", finding.name, finding.detail).as_bytes())?;
    }
    match findings.iter().filter(|finding| !finding.ok).count() {
        0 => Ok(()),
        missing => bail!("{missing} of {} things are missing", findings.len()),
    }
}

async fn run_checks(settings: &DoctorSettings) -> anyhow::Result<Vec<Finding>> {
    let place = TrialDir::of(settings.store.data_dir.path()?);
    let data_dir = place.dir();
    let mut findings: Vec<Finding> = check_versions().await.into_iter().map(Finding::from).collect();
    findings.extend(PROGRAMS.into_iter().map(|(name, file, package)| program(name, file, package)));
    let engine = engine(data_dir).await;
    match &engine {
        Ok(engine) => findings.extend(engine.checks().await.into_iter().map(Finding::from)),
        Err(error) => findings.push(finding(
            "sandboxes",
            Err(with_causes(error)),
            "install or fix what is missing above, then run casement doctor again",
        )),
    }
    findings.extend(shared_user());
    findings.push(fonts());
    let script_runner = script_runner(settings.script_runner.as_deref(), data_dir);
    findings.push(finding("script runner", script_runner, SCRIPT_RUNNER_REMEDY));
    findings.push(match &settings.store.database_url {
        Some(url) => finding("PostgreSQL", database(url).await, "start it, or give another --database-url"),
        None => finding(
            "PostgreSQL",
            Binaries::newest()
                .map(|found| format!("{} in {}", found.major, found.dir.display()))
                .map_err(|error| error.to_string()),
            "install the package postgresql, or give --database-url",
        ),
    });
    findings.push(finding("disk", disk(data_dir), "make room, or give another --data-dir"));
    findings.push(finding(
        "open files",
        open_files(),
        "raise the limit: ulimit -n 65536, or LimitNOFILE= of the service",
    ));
    // If something is missing, the trial fails for that reason.
    if let Some(engine) = engine.ok().filter(|_| findings.iter().all(|finding| finding.ok)) {
        findings.push(finding(
            "a browser",
            browser(&engine).await,
            "CASEMENT_LOG=debug casement doctor shows how far it came",
        ));
    }
    for Trial { name, found, remedy } in try_each(settings.grids.servers()?).await {
        findings.push(finding(&name, found, remedy));
    }
    Ok(findings)
}

fn finding(name: &str, found: Result<String, String>, remedy: &str) -> Finding {
    let (ok, detail) = match found {
        Ok(detail) => (true, detail),
        Err(detail) => (false, detail),
    };
    Finding { name: name.to_owned(), ok, detail, remedy: (!ok).then(|| remedy.to_owned()) }
}

/// Checks a program, and names its Debian package.
fn program(name: &str, file: &str, package: &str) -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin".into()]);
    let found = places.map(|place| place.join(file)).find(|path| path.is_file());
    let found = found.map(|path| path.display().to_string()).ok_or_else(|| "not found".to_owned());
    finding(name, found, &format!("install the package {package}"))
}

/// Says what sandboxes share if an ordinary user starts the server. As root, each has a user of its own.
fn shared_user() -> Option<Finding> {
    let user = rustix::process::geteuid();
    (!user.is_root()).then(|| Finding {
        name: "users of sandboxes".to_owned(),
        ok: true,
        detail: format!(
            "all sandboxes run as this user ({}), apart by namespaces alone: one session can use up what the kernel counts for \
             each user",
            user.as_raw()
        ),
        remedy: Some("start the server as root, as the package does: each sandbox then has a user of its own".to_owned()),
    })
}

/// Names the languages whose letters pages would show as boxes. Everything else works without them.
fn fonts() -> Finding {
    let (detail, remedy) = match fonts::missing() {
        Ok(missing) if missing.languages.is_empty() => {
            (format!("for {} languages and emoji", fonts::looked_for() - 1), None)
        }
        Ok(fonts::Missing { languages, packages }) => {
            let packages: Vec<&str> = packages.into_iter().collect();
            let detail = format!("none for {}: pages show boxes in place of their letters", languages.join(", "));
            (detail, Some(format!("install the packages {}", packages.join(" "))))
        }
        Err(error) => {
            (format!("fc-list: {error}"), Some("install the package fontconfig, which tells them".to_owned()))
        }
    };
    Finding { name: "fonts".to_owned(), ok: true, detail, remedy }
}

/// The directory for the trial's browser: the data directory or, before the first start, a directory beside it. A check
/// must not create the data directory: as root, it would do so for the wrong user.
struct TrialDir {
    dir: PathBuf,
    is_temporary: bool,
}

impl TrialDir {
    fn of(data_dir: PathBuf) -> Self {
        if data_dir.exists() {
            return Self { dir: data_dir, is_temporary: false };
        }
        let above = data_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
        Self { dir: above.join(format!(".casement-doctor-{}", std::process::id())), is_temporary: true }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for TrialDir {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

async fn database(url: &str) -> Result<String, String> {
    let config = DatabaseConfig::parse(url).map_err(|error| error.to_string())?;
    ensure_suitable(&config, System.now()).await.map_err(|error| error.to_string())?;
    Ok("the one of --database-url answers".to_owned())
}

async fn engine(data_dir: &Path) -> anyhow::Result<Engine> {
    data_dir::make(data_dir)?;
    let config = EngineConfig::discover(data_dir.to_owned())?;
    let egress = Egress::new(Rules::default(), Arc::new(SystemResolver::default()), Limits::default());
    Ok(Engine::new(config, Arc::new(SandboxEgress::new(egress, DeniedLog::default()))).await?)
}

/// Starts a browser like a session's, drives it, and ends it.
async fn browser(engine: &Engine) -> Result<String, String> {
    let shape = Shape { headless: true, ..Shape::default() };
    let launch = Launch::new(BrowserId::from_ulid(System.next()), shape, ABANDONED_SECONDS);
    let began = Instant::now();
    let driven = tokio::time::timeout(TRIAL_TIMEOUT, async {
        let started = engine.start(&launch).await?;
        let took = began.elapsed();
        check(webdriver(engine, launch.id)).await?;
        let online = if has_device(engine, launch.id).await? { "" } else { NO_DEVICE };
        Ok::<_, anyhow::Error>(format!(
            "{} answered after {} ms, over WebDriver too{online}",
            started.version,
            took.as_millis()
        ))
    });
    // The browser is ended in any case.
    let driven = tokio::select! {
        driven = driven => driven.map_err(|_| format!("no result within {} s", TRIAL_TIMEOUT.as_secs())),
        _ = tokio::signal::ctrl_c() => Err("interrupted".to_owned()),
    };
    let ended = engine.end(launch.id).await.map_err(|error| error.to_string());
    let summary = driven?.map_err(|error| error.to_string())?;
    ended.map(|()| summary)
}

/// Returns true if the network of a browser has a device beside loopback.
async fn has_device(engine: &Engine, id: BrowserId) -> anyhow::Result<bool> {
    let pids = engine.sandbox_pids(id).await?;
    let devices = pids.iter().filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok());
    // Two lines of headings and one for each device.
    Ok(devices.map(|table| table.lines().count()).max().is_none_or(|lines| lines > 3))
}

/// Opens streams to the chromedriver of the browser.
fn webdriver(engine: &Engine, id: BrowserId) -> Connect {
    let engine = engine.clone();
    Connect::new(move || {
        let engine = engine.clone();
        async move {
            let stream = engine.dial(id, Channel::WebDriver).await.map_err(std::io::Error::other)?;
            tokio::net::TcpStream::from_std(stream)
        }
    })
}

impl From<Check> for Finding {
    fn from(check: Check) -> Self {
        let Check { name, ok, detail, remedy } = check;
        Self { name: name.to_owned(), ok, detail, remedy }
    }
}

/// Returns the path of the script runner, as the server would find it.
fn script_runner(given: Option<&Path>, data_dir: &Path) -> Result<String, String> {
    let folder = match given {
        Some(folder) => folder.to_owned(),
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
    if free >= MIN_DISK_BYTES { Ok(text) } else { Err(text) }
}

fn open_files() -> Result<String, String> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.maximum {
        Some(max) if max < MIN_OPEN_FILES => Err(format!("at most {max}")),
        Some(max) => Ok(format!("up to {max}")),
        None => Ok("no limit".into()),
    }
}

/// Raises the limit of open files to the maximum: every connection and every session needs some.
pub(crate) fn raise_open_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
}
