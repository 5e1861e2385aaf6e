//! The measuring machine, and the resources of processes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use casement_chromium::EngineConfig;
use casement_postgres::cluster::Binaries;
use casement_test_support::program::processes_of;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The load at which a measurement may begin, and the timeout of the wait for it.
const MAX_LOAD: f64 = 0.10;
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Raises the limit of open files, because thousands of connections need as many descriptors.
pub(crate) fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns the limit of open files.
pub(crate) fn open_files() -> usize {
    getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Returns a description of the machine and its load before the run.
pub(crate) fn describe() -> anyhow::Result<String> {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split([':', '=']).nth(1).unwrap_or("unknown").trim().trim_matches('"').to_owned()
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let memory: u64 = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let chromium = EngineConfig::discover(std::env::temp_dir())?.chromium;
    let chromium = Command::new(chromium).arg("--version").output().context("asking Chromium's version")?.stdout;
    Ok(format!(
        "{cores} cores of {}, {} GiB, {}, Linux {}, {}, PostgreSQL {}; load before the run {}",
        field("/proc/cpuinfo", "model name"),
        memory / 1024 / 1024,
        field("/etc/os-release", "PRETTY_NAME"),
        kernel.trim(),
        String::from_utf8_lossy(&chromium).trim(),
        Binaries::newest()?.major,
        load.split(' ').next().unwrap_or_default(),
    ))
}

/// Waits until the machine is idle. Prints a warning if it does not become idle, because the figures are worse then.
pub(crate) fn quiet() {
    let began = Instant::now();
    let mut share = 1.0;
    while share > MAX_LOAD {
        if began.elapsed() > IDLE_TIMEOUT {
            crate::progress(&format!("the machine does not come to rest: {:.0} % busy", share * 100.0));
            return;
        }
        let (busy, whole) = ticks();
        thread::sleep(POLL_INTERVAL);
        let (later, later_whole) = ticks();
        share = (later - busy) as f64 / (later_whole - whole).max(1) as f64;
    }
}

/// Returns the busy and all ticks of all cores.
fn ticks() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers: Vec<u64> = text.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
    let (all, idle) = (numbers.iter().sum::<u64>(), numbers.get(3).unwrap_or(&0) + numbers.get(4).unwrap_or(&0));
    (all - idle, all)
}

/// Returns the proportional set size of a process, in KiB.
pub(crate) fn pss_kib(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}; run as root"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
    line.trim().trim_end_matches(" kB").parse().context("Pss is no number")
}

/// Returns the sum of the proportional set sizes of all processes of a directory in KiB, and their number.
pub(crate) fn pss_kib_below(dir: &Path) -> anyhow::Result<(u64, usize)> {
    let processes = processes_of(dir);
    let sizes = processes.iter().map(|process| pss_kib(process.pid.unsigned_abs()));
    Ok((sizes.sum::<anyhow::Result<u64>>()?, processes.len()))
}

/// Returns the process id of the server of a data directory.
pub(crate) fn server_pid(data_dir: &Path) -> anyhow::Result<u32> {
    let processes = processes_of(data_dir);
    let server = processes.iter().find(|process| process.argv.get(1).is_some_and(|word| word == "serve"));
    Ok(server.context("the server does not run")?.pid.unsigned_abs())
}

/// Returns the processor time that a process has used so far, in milliseconds.
pub(crate) fn cpu_ms(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = text.rsplit_once(')').context("no name")?;
    let used = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    // The kernel counts hundredths of a second on every machine.
    Ok(used.sum::<Result<u64, _>>()? * 10)
}
