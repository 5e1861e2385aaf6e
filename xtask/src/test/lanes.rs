//! Runs test programs side by side.

use std::ffi::OsString;
use std::io::BufReader;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use super::jobs::Job;
use super::processors::Times;
use super::results::{self, Output, Results};
use crate::step;

/// The number of programs at a time: one waits while the other computes. More would need more memory and start more
/// servers.
const LANES: usize = 2;
/// The variable with the number of tests at a time, which also the test programs read.
const THREADS: &str = "RUST_TEST_THREADS";

/// The share of the processors, in percent, above which other programs make the machine busy, and the time for which they are
/// watched.
const BUSY_PERCENT: u64 = 75;
const SAMPLE: Duration = Duration::from_secs(2);

/// The name and the value of a variable.
pub(super) type Variable = (&'static str, OsString);

/// What all jobs have in common.
pub(super) struct Setting {
    pub(super) variables: Vec<Variable>,
    /// Tests print what they print.
    pub(super) shown: bool,
}

/// Runs the jobs in their order, each as soon as a lane is free.
pub(super) fn run(jobs: &[Job], setting: &Setting) -> Vec<Results> {
    let next = AtomicUsize::new(0);
    let lane = |threads: usize| {
        let of_lane = std::iter::from_fn(|| jobs.get(next.fetch_add(1, Ordering::Relaxed)));
        of_lane.map(|job| run_one(job, threads, setting)).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = shares(jobs.len()).into_iter().map(|threads| scope.spawn(move || lane(threads))).collect();
        let joined = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    })
}

/// Returns the number of tests at a time for each lane.
fn shares(jobs: usize) -> Vec<usize> {
    let chosen = std::env::var(THREADS).ok().and_then(|threads| threads.parse().ok());
    let cores = available_parallelism().map_or(2, usize::from);
    let chosen = chosen.or_else(|| is_busy().then_some(cores.min(2)));
    shares_of(jobs, cores, chosen)
}

/// Returns whether other programs keep the processors busy. Then fewer tests run at a time: a browser gets less of a busy
/// processor than other programs, so that several would not start within their timeout.
fn is_busy() -> bool {
    let Some(before) = Times::now() else { return false };
    thread::sleep(SAMPLE);
    let busy = Times::now().map_or(0, |after| after.busy_percent_since(before));
    if busy >= BUSY_PERCENT {
        results::print(&format!("other programs use {busy} % of the processors: fewer tests run at a time\n"));
    }
    busy >= BUSY_PERCENT
}

/// Tests wait for a third of their time, so one lane runs one test more than there are cores, at least two. Most tests
/// start Chromium, and each start uses a core for a second: many more tests than cores make all of them slower, and
/// timeouts that suffice for one browser are too short for ten. So one lane has at most four, and two lanes together only
/// two more than one lane: the first one, which runs the longest program, has the larger share. With three more the
/// processors were 95 % busy instead of 88, and the run was no shorter.
fn shares_of(jobs: usize, cores: usize, chosen: Option<usize>) -> Vec<usize> {
    let of_lanes = |lanes: usize| chosen.unwrap_or((cores + 1).clamp(2, 4) + 2 * (lanes - 1)).max(1);
    let lanes = LANES.min(jobs).min(of_lanes(LANES)).max(1);
    let total = of_lanes(lanes);
    (1..=lanes).map(|lane| (total + lanes - lane) / lanes).collect()
}

fn run_one(job: &Job, threads: usize, setting: &Setting) -> Results {
    let started = Instant::now();
    results::print(&format!("==> {}: {} tests, {threads} at a time\n", job.title, job.names.len()));
    let (output, outcome, is_success) = start(job, threads, setting);
    let ended = output.complete(&job.names, &outcome, is_success);
    let duration = started.elapsed();
    let failed = ended.iter().filter(|test| test.failure.is_some()).count();
    let counts = format!("{} passed, {failed} failed", ended.len() - failed);
    results::print(&format!("==> {}: {counts} after {}\n", job.title, step::readable(duration)));
    Results { title: job.title.clone(), package: job.program.package.clone(), threads, duration, ended }
}

/// Returns the output of the job's process, how it ended, and whether that is a success.
fn start(job: &Job, threads: usize, setting: &Setting) -> (Output, String, bool) {
    let mut command = step::ending_with_this(&command(job, threads, setting));
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return (Output::default(), format!("cannot start: {error}"), false),
    };
    let output = child.stdout.take().map(BufReader::new);
    let output = output.map(|output| results::read(&job.title, output, results::print)).unwrap_or_default();
    match child.wait() {
        Ok(status) => (output, status.to_string(), status.success()),
        Err(error) => (output, error.to_string(), false),
    }
}

fn command(job: &Job, threads: usize, setting: &Setting) -> Command {
    let mut command = job.program.command();
    // The test programs of a stable toolchain know events and durations, but only with this variable. It does no harm to
    // what they start: no test builds anything.
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Z", "unstable-options", "--format", "json", "--report-time"]);
    if setting.shown {
        command.arg("--nocapture");
    }
    if !job.is_whole {
        command.arg("--exact").args(&job.names);
    }
    command.envs(setting.variables.iter().map(|(name, value)| (name, value))).env(THREADS, threads.to_string());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lanes_share_two_tests_more_than_one_lane_has() {
        assert_eq!(shares_of(1, 2, None), [3]);
        assert_eq!(shares_of(9, 2, None), [3, 2]);
        assert_eq!(shares_of(9, 64, None), [3, 3]);
        assert_eq!(shares_of(1, 64, None), [4]);
    }

    #[test]
    fn a_chosen_number_of_tests_at_a_time_is_that_of_all_lanes() {
        assert_eq!(shares_of(9, 2, Some(1)), [1]);
        assert_eq!(shares_of(9, 2, Some(5)), [3, 2]);
        assert_eq!(shares_of(1, 2, Some(5)), [5]);
        assert_eq!(shares_of(9, 2, Some(0)), [1]);
    }
}
