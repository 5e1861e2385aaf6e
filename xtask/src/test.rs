//! `cargo xtask test`: runs all tests, also on a fresh machine.

mod jobs;
mod lanes;
mod processors;
mod programs;
mod results;
mod summary;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};

use self::jobs::Wanted;
use self::lanes::{Setting, Variable};
use self::programs::Program;
use self::summary::Step;
use crate::{client_methods, clients, packages, reverse_proxies, script_runner, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only the tests of this package, by its name or that of its folder; may be given several times
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

/// The packages whose tests need only cargo and git: for them alone, nothing is installed.
const PLAIN: &[&str] = &[
    "casement-agent-protocol",
    "casement-archive",
    "casement-cli",
    "casement-dial",
    "casement-domain",
    "casement-http",
    "casement-memory",
    "casement-sealing",
    "xtask",
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

    /// Reads the names of the longest end-to-end tests. With variables all tests stay in one process, because its servers
    /// share what the variables ask for.
    fn longest(&self) -> Result<Vec<String>> {
        let path = workspace::root().join("crates/app/tests/longest.txt");
        if !self.variables.is_empty() || !path.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
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
    let packages = programs::full_names(&options.package)?;
    let mut cargo = cargo_test(options, &packages);
    let is_plain = !packages.is_empty() && packages.iter().all(|package| PLAIN.contains(&package.as_str()));
    // Building needs the processors and installing the network, so they run concurrently.
    let ((built, building), (installed, installing)) = thread::scope(|scope| {
        let building = scope.spawn(|| Step::timed("building", || programs::build(&mut cargo)));
        let installed = Step::timed("installing, meanwhile", || if is_plain { Ok(Vec::new()) } else { install() });
        (building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), installed)
    });
    let setting = Setting { variables: variables(options, installed?, folder), shown: options.shown };
    let with_names = |program: Program| program.tests().map(|names| (program, names));
    let programs = built?.into_iter().map(with_names).collect::<Result<Vec<_>>>()?;
    let longest = options.longest()?;
    let jobs = Wanted { parts: &options.filter, skipped: &options.skipped, longest: &longest }.jobs(programs)?;
    let (results, testing) = Step::timed("testing", || lanes::run(&jobs, &setting));
    results::print(&summary::text(&[building, installing, testing], &results));
    let failed: usize = results.iter().map(|one| one.failed().count()).sum();
    ensure!(failed == 0, "{failed} tests failed");
    Ok(())
}

/// Returns the variables of the tests: the chosen ones, those of what is installed, and the folder for records.
fn variables(options: &Options, installed: Vec<Variable>, methods: Option<&Path>) -> Vec<Variable> {
    let chosen = options.variables.iter().map(|(name, value)| (*name, value.into()));
    let methods = methods.map(|folder| (client_methods::FOLDER, folder.into()));
    chosen.chain(installed).chain(methods).collect()
}

/// Installs the requirements of the tests. Returns the variables that say where they are.
fn install() -> Result<Vec<Variable>> {
    packages::ensure(&[packages::RUN, packages::FONTS, packages::CLUSTER, packages::TEST])?;
    let clients = clients::ensure()?;
    script_runner::ensure()?;
    let reverse_proxies = reverse_proxies::ensure()?;
    Ok(vec![("CASEMENT_TEST_CLIENTS", clients.into()), ("CASEMENT_TEST_REVERSE_PROXIES", reverse_proxies.into())])
}

/// Returns `cargo test` for the chosen packages.
fn cargo_test(options: &Options, packages: &[String]) -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--locked"]);
    if packages.is_empty() {
        cargo.arg("--workspace");
    }
    cargo.args(packages.iter().flat_map(|package| ["--package", package.as_str()]));
    if options.shown {
        // The tests with faults of hosts.
        cargo.args(["--features", "casement/faults"]);
    }
    cargo
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DRIVING, OF_ONE_HOST, Options, PLAIN, lacking};
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
    fn the_longest_tests_exist() {
        let longest = Options::of("casement", &[]).longest().expect("the list, if there is one");
        longest.iter().for_each(|test| assert_exists(test));
    }

    #[test]
    fn a_package_that_needs_nothing_exists() {
        let members = workspace::packages().expect("cargo answers");
        for name in PLAIN {
            assert!(members.iter().any(|member| member.name == *name), "there is no package {name}");
        }
    }

    #[test]
    fn a_test_that_is_left_out_with_a_grid_exists_and_would_run() {
        for name in lacking().expect("the list").into_values().flatten() {
            assert_exists(&name);
            assert!(DRIVING.iter().any(|module| name.starts_with(module)), "{name} does not run with a Grid at all");
        }
    }
}
