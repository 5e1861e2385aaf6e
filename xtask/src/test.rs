//! `cargo xtask test`: runs all tests, also on a fresh machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, available_parallelism};

use anyhow::{Context, Result, ensure};

use crate::{client_methods, clients, packages, reverse_proxies, script_runner, step, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only the tests of this package; may be given several times
    #[arg(short, long, value_name = "PACKAGE")]
    package: Vec<String>,
    /// Only the tests that drive sessions, each with this many servers over one database: a call never reaches the server
    /// that has the session
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: Option<u8>,
    /// Only the tests that drive sessions, with the browsers of a Selenium Grid, which this starts; those that need what it
    /// lacks are left out
    #[arg(long, conflicts_with = "nodes")]
    grid: bool,
    /// Only the tests whose name contains one of these
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Tests that do not run.
    #[arg(skip)]
    skipped: Vec<String>,
    /// Variables of the tests.
    #[arg(skip)]
    variables: Vec<(&'static str, String)>,
    /// Show what tests print.
    #[arg(skip)]
    shown: bool,
}

/// The end-to-end tests that drive sessions.
const DRIVING: &[&str] = &[
    "all::app_examples::",
    "all::apps::",
    "all::computer::",
    "all::conformance::",
    "all::connect::",
    "all::events::",
    "all::extensions::",
    "all::files::",
    "all::hosted_login::",
    "all::large_files::",
    "all::live_view::",
    "all::login_steps::",
    "all::login_ways::",
    "all::logins::",
    "all::node_client::",
    "all::playwright::",
    "all::pools::",
    "all::processes::",
    "all::profiles::",
    "all::programs::",
    "all::puppeteer::",
    "all::python_client::",
    "all::replays::",
    "all::script::",
    "all::selenium::",
    "all::telemetry::",
    "all::ui::",
];

/// Those of them that look at the host of the sessions, or stop their server.
const OF_ONE_HOST: &[&str] = &[
    "all::logins::an_unknown_page_ends_the_login_with_a_screenshot_for_the_operator",
    "all::pools::a_browser_that_partly_hangs_since_its_last_probe_is_not_leased",
    "all::pools::a_browser_whose_page_hangs_is_not_leased",
    "all::pools::a_pool_that_cannot_fill_backs_off_reports_why_and_fills_once_it_can",
    "all::pools::a_create_of_the_default_shape_takes_a_spare_and_never_a_browser_of_a_pool",
    "all::profiles::a_stop_that_ends_the_sessions_saves_all_of_their_profiles",
    "all::replays::a_recording_is_stored_or_failed_after_its_server_is_stopped_or_killed",
    "all::replays::a_recording_whose_encoder_is_killed_is_reported_and_what_was_saved_can_be_played",
];

impl Options {
    /// The tests of one package whose names contain one of these.
    pub(crate) fn of(package: &str, filter: &[&str]) -> Self {
        let filter = filter.iter().map(|&part| part.to_owned()).collect();
        Self {
            package: vec![package.to_owned()],
            nodes: None,
            grid: false,
            filter,
            skipped: Vec::new(),
            variables: Vec::new(),
            shown: false,
        }
    }

    /// The same tests, with variables, and with what they print.
    pub(crate) fn shown_with(self, variables: Vec<(&'static str, String)>) -> Self {
        Self { variables, shown: true, ..self }
    }

    /// The tests that drive sessions, or those of them that the filters name, with several servers.
    fn of_nodes(&self, nodes: u8) -> Self {
        let skipped = OF_ONE_HOST.iter().map(|&test| test.to_owned()).collect();
        self.driving(("CASEMENT_TEST_NODES", nodes.to_string()), skipped)
    }

    /// The same tests with the browsers of a Grid, without those that need what it lacks.
    fn of_grid(&self) -> Result<Self> {
        let skipped = lacking()?.into_values().flatten().collect();
        Ok(self.driving(("CASEMENT_TEST_ENGINE", "grid".to_owned()), skipped))
    }

    fn driving(&self, variable: (&'static str, String), skipped: Vec<String>) -> Self {
        let is_wanted =
            |module: &str| self.filter.is_empty() || self.filter.iter().any(|part| module.contains(part.as_str()));
        let filter: Vec<&str> = DRIVING.iter().copied().filter(|module| is_wanted(module)).collect();
        Self { variables: vec![variable], skipped, ..Self::of("casement", &filter) }
    }
}

/// Reads which tests and modules need what a Grid lacks, by the capability.
fn lacking() -> Result<BTreeMap<String, Vec<String>>> {
    let path = workspace::root().join("crates/app/tests/lacking.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not as expected", path.display()))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let of_switch = match options.nodes {
        Some(nodes) => Some(options.of_nodes(nodes)),
        None => options.grid.then(|| options.of_grid()).transpose()?,
    };
    if let Some(options) = of_switch {
        ensure!(!options.filter.is_empty(), "these tests drive no sessions; those that do: {}", DRIVING.join(" "));
        return run_recording(&options, None);
    }
    if !options.package.is_empty() || !options.filter.is_empty() {
        return run_recording(options, None);
    }
    let folder = client_methods::new_folder()?;
    run_recording(options, Some(&folder))?;
    client_methods::check(&folder)
}

/// Runs tests, which put records of the called methods of the API clients into `folder`, if one is given.
pub(crate) fn run_recording(options: &Options, folder: Option<&Path>) -> Result<()> {
    // Building needs the processors and installing the network, so they run concurrently.
    let (built, installed) = thread::scope(|scope| {
        let building = scope.spawn(|| step::run("building the tests", cargo_test(options).arg("--no-run")));
        let installed = install();
        (building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), installed)
    });
    let (clients, reverse_proxies) = installed?;
    built?;
    let mut cargo = cargo_test(options);
    cargo.arg("--").args(&options.filter);
    cargo.args(options.skipped.iter().flat_map(|test| ["--skip", test.as_str()]));
    if options.shown {
        cargo.arg("--nocapture");
    }
    cargo.envs(options.variables.iter().map(|(name, value)| (name, value)));
    cargo.env("CASEMENT_TEST_CLIENTS", clients);
    cargo.env("CASEMENT_TEST_REVERSE_PROXIES", reverse_proxies);
    if let Some(folder) = folder {
        cargo.env(client_methods::FOLDER, folder);
    }
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        cargo.env("RUST_TEST_THREADS", threads().to_string());
    }
    step::run("testing", &mut cargo)
}

/// Installs the requirements of the tests. Returns the folders of the public clients and of the reverse proxies.
fn install() -> Result<(PathBuf, PathBuf)> {
    packages::ensure(&[packages::RUN, packages::CLUSTER, packages::TEST])?;
    let clients = clients::ensure()?;
    script_runner::ensure()?;
    Ok((clients, reverse_proxies::ensure()?))
}

/// Returns `cargo test` for the chosen packages.
fn cargo_test(options: &Options) -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--locked", "--no-fail-fast"]);
    if options.package.is_empty() {
        cargo.arg("--workspace");
    }
    for package in &options.package {
        cargo.args(["--package", package]);
    }
    if options.shown {
        // The tests with faults of hosts.
        cargo.args(["--features", "casement/faults"]);
    }
    cargo
}

/// Returns the number of tests that run at a time: one more than cores, because tests wait for a third of their time.
/// Most tests start Chromium, and each start uses a core for a second: many more tests than cores make all of them
/// slower, and timeouts that suffice for one browser are too short for ten.
fn threads() -> usize {
    (available_parallelism().map_or(2, usize::from) + 1).clamp(2, 4)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DRIVING, OF_ONE_HOST, lacking};
    use crate::workspace;

    /// Fails unless the module of the end-to-end tests exists, and the test, if a name is given.
    fn assert_exists(name: &str) {
        let (module, test) = name.trim_start_matches("all::").split_once("::").expect("a module and a test");
        let path = workspace::root().join(format!("crates/app/tests/all/{module}.rs"));
        let text = fs::read_to_string(path).unwrap_or_else(|_| panic!("there is no module {module}"));
        assert!(test.is_empty() || text.contains(&format!("\nfn {test}(")), "there is no test {name}");
    }

    #[test]
    fn the_tests_that_drive_sessions_exist() {
        let all = fs::read_to_string(workspace::root().join("crates/app/tests/all.rs")).expect("the end-to-end tests");
        for module in DRIVING {
            let name = module.trim_start_matches("all::").trim_end_matches("::");
            assert!(all.contains(&format!("    mod {name};\n")), "there is no module {name}");
        }
        OF_ONE_HOST.iter().for_each(|test| assert_exists(test));
    }

    #[test]
    fn a_test_that_is_left_out_with_a_grid_exists_and_would_run() {
        for name in lacking().expect("the list").into_values().flatten() {
            assert_exists(&name);
            assert!(DRIVING.iter().any(|module| name.starts_with(module)), "{name} does not run with a Grid at all");
        }
    }
}
