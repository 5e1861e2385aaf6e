//! The configuration of the engine, and the search for its programs.

use std::path::{Path, PathBuf};

use casement_agent_protocol::telemetry::Addresses;
use casement_sandbox::find_program;

use crate::fault::EngineSetupError;
use crate::script_runner;

/// Common paths of Chromium's binary. A program on `PATH` is usually a script, which takes time at every start.
const CHROMIUM_PATHS: &[&str] = &[
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
];

/// The configuration of the engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The data directory, used by one server at a time. Sandboxes are in `sandboxes/<id>/`.
    pub data_dir: PathBuf,
    /// The program that runs the agent when called with the argument `agent`.
    pub program: PathBuf,
    /// Chromium's real binary, not a script around it.
    pub chromium: PathBuf,
    /// The path of chromedriver of the same version.
    pub chromedriver: PathBuf,
    /// The X server of browsers with a display.
    pub xvfb: PathBuf,
    /// The path of bubblewrap.
    pub bwrap: PathBuf,
    /// The path of `setpriv` of util-linux, needed as root only.
    pub setpriv: PathBuf,
    /// The folder of the script runner, if there is one.
    pub script_runner: Option<PathBuf>,
    /// As root: the first uid of sandboxes' users. Nothing else may use these uids.
    pub uid_base: u32,
    /// As root: the number of sandboxes' users, which limits the number of browsers.
    pub uid_count: u32,
    /// The memory limit in bytes of a browser whose shape names none, including everything in its sandbox but files.
    pub memory_bytes: u64,
    /// The memory limit in bytes of the sandbox of a remote browser, in which scripts and encoders of recordings run.
    pub remote_memory_bytes: u64,
    /// The disk limit of one sandbox in bytes: half in its home directory, half in `/tmp`.
    pub disk_bytes: u64,
    /// The IANA name of the time zone of browsers whose shape names none; `None`: the system's.
    pub time_zone: Option<String>,
    /// The limit of processes and threads of one browser.
    pub max_processes: u32,
    /// The limit of open files of one process.
    pub max_open_files: u32,
    /// The parts of URLs that telemetry events contain.
    pub telemetry_addresses: Addresses,
}

impl EngineConfig {
    /// Creates a configuration with default limits, the running program as agent, and this system's other programs.
    ///
    /// # Errors
    /// The first missing program, with the package to install.
    pub fn discover(data_dir: PathBuf) -> Result<Self, EngineSetupError> {
        let program = std::env::current_exe().map_err(EngineSetupError::OwnProgram)?;
        Ok(Self {
            data_dir,
            script_runner: script_runner::find_beside(&program),
            program,
            chromium: chromium()?,
            chromedriver: chromedriver()?,
            xvfb: find("Xvfb", &["Xvfb"], "xvfb")?,
            bwrap: find("bubblewrap", &["bwrap"], "bubblewrap")?,
            setpriv: find("setpriv", &["setpriv"], "util-linux")?,
            // Above the range that distributions assign to people, services and containers.
            uid_base: 1_900_000_000,
            uid_count: 10_000,
            memory_bytes: 2 << 30,
            remote_memory_bytes: 512 << 20,
            disk_bytes: 2 << 30,
            time_zone: None,
            max_processes: 1024,
            max_open_files: 8192,
            telemetry_addresses: Addresses::Full,
        })
    }

    /// Returns the directories that a sandbox needs in addition to `/usr`: those of programs installed elsewhere.
    pub(crate) fn read_only(&self) -> Vec<PathBuf> {
        let programs = [&self.chromium, &self.chromedriver, &self.xvfb];
        let elsewhere = programs.into_iter().filter(|path| !path.starts_with("/usr"));
        let mut paths: Vec<PathBuf> = elsewhere.filter_map(|path| path.parent()).map(Path::to_owned).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Returns the paths of the script runner, on the host and in a sandbox; `None` if it cannot be used.
    pub(crate) fn script_runner(&self) -> Option<(PathBuf, PathBuf)> {
        // Checked at each start: it may be reinstalled, and a sandbox starts without it too.
        let place = self.script_runner.as_deref()?;
        match script_runner::make_reachable(place, &self.data_dir) {
            Ok(place) => Some((place, PathBuf::from(script_runner::SANDBOX_PATH))),
            Err(error) => {
                tracing::warn!(error, "a session starts without the script runner");
                None
            }
        }
    }

    /// Returns the folder of the script runner's Node, which contains `bin/node` and is accessible to sandboxes.
    #[must_use]
    pub fn node(&self) -> Option<PathBuf> {
        let (script_runner, _) = self.script_runner()?;
        Some(script_runner.join(script_runner::NODE).parent()?.parent()?.to_owned())
    }

    /// Returns the path from which this Chromium reads policies.
    pub(crate) fn policy_path(&self) -> PathBuf {
        let chromium = self.chromium.to_string_lossy();
        let directory = if chromium.contains("google") {
            "/etc/opt/chrome"
        } else if chromium.contains("chromium-browser") {
            "/etc/chromium-browser"
        } else {
            "/etc/chromium"
        };
        Path::new(directory).join("policies/managed/casement.json")
    }
}

/// Returns the path of Chromium's binary.
pub(crate) fn chromium() -> Result<PathBuf, EngineSetupError> {
    let known = CHROMIUM_PATHS.iter().map(PathBuf::from).find(|path| path.is_file());
    let search = || find("Chromium", &["chromium", "chromium-browser", "google-chrome-stable"], "chromium");
    known.map_or_else(search, Ok)
}

pub(crate) fn chromedriver() -> Result<PathBuf, EngineSetupError> {
    find("chromedriver", &["chromedriver"], "chromium-driver")
}

fn find(what: &'static str, names: &[&str], package: &'static str) -> Result<PathBuf, EngineSetupError> {
    find_program(names).ok_or(EngineSetupError::Missing { what, package })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(chromium: &str) -> EngineConfig {
        let mut config = EngineConfig::discover("/x".into()).expect("the programs are installed");
        config.chromium = chromium.into();
        config
    }

    #[test]
    fn only_programs_outside_the_system_are_mounted() {
        assert!(with("/usr/lib/chromium/chromium").read_only().is_empty());
        assert_eq!(with("/opt/google/chrome/chrome").read_only(), [Path::new("/opt/google/chrome")]);
    }

    #[test]
    fn policies_are_where_each_build_looks_for_them() {
        for (chromium, start) in [
            ("/usr/lib/chromium/chromium", "/etc/chromium/"),
            ("/usr/lib/chromium-browser/chromium-browser", "/etc/chromium-browser/"),
            ("/opt/google/chrome/chrome", "/etc/opt/chrome/"),
        ] {
            assert!(with(chromium).policy_path().starts_with(start), "{chromium}");
        }
    }
}
