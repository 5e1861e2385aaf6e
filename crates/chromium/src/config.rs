//! How browsers are run, and where their programs are.

use std::path::{Path, PathBuf};

use casement_agent_protocol::telemetry::Addresses;

use crate::fault::EngineSetupError;
use crate::script_runner;

/// Where a system may keep Chromium itself. What lies on `PATH` is mostly a script, which costs time at every start.
const CHROMIUM: &[&str] = &[
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
];

/// How the engine runs its browsers.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Sandboxes live below it, in `sandboxes/<id>/`. One server at a time.
    pub data_dir: PathBuf,
    /// The program that is the agent when called with the one argument `agent`.
    pub program: PathBuf,
    /// Chromium's real binary rather than a script around it.
    pub chromium: PathBuf,
    /// chromedriver of the same version.
    pub chromedriver: PathBuf,
    /// The X server of browsers with a display.
    pub xvfb: PathBuf,
    /// bubblewrap.
    pub bwrap: PathBuf,
    /// `setpriv` of util-linux, needed as root only.
    pub setpriv: PathBuf,
    /// The folder of the script runner, where there is one.
    pub script_runner: Option<PathBuf>,
    /// As root: the first of the users of this machine that sandboxes run as. Nobody else may use them.
    pub uid_base: u32,
    /// As root: how many such users there are, and with that the most browsers at a time.
    pub uid_count: u32,
    /// The most memory of one browser in bytes, with everything in its sandbox but files.
    pub memory_bytes: u64,
    /// The most bytes of files of one browser's machine: half of them in its home directory, half in `/tmp`.
    pub disk_bytes: u64,
    /// The most processes and threads of one browser.
    pub max_processes: u32,
    /// The most open files of one process.
    pub max_open_files: u32,
    /// How much telemetry tells of the addresses in its events.
    pub telemetry_addresses: Addresses,
}

impl EngineConfig {
    /// The usual limits, the running program as the agent, and the other programs where this system has them.
    ///
    /// # Errors
    /// The first program that is not there, with what to install.
    pub fn discover(data_dir: PathBuf) -> Result<Self, EngineSetupError> {
        let program = std::env::current_exe().map_err(EngineSetupError::OwnProgram)?;
        Ok(Self {
            data_dir,
            script_runner: script_runner::beside(&program),
            program,
            chromium: chromium()?,
            chromedriver: chromedriver()?,
            xvfb: find("Xvfb", &["Xvfb"], "xvfb")?,
            bwrap: find("bubblewrap", &["bwrap"], "bubblewrap")?,
            setpriv: find("setpriv", &["setpriv"], "util-linux")?,
            // Above what distributions give to people, services and containers.
            uid_base: 1_900_000_000,
            uid_count: 10_000,
            memory_bytes: 2 << 30,
            disk_bytes: 2 << 30,
            max_processes: 1024,
            max_open_files: 8192,
            telemetry_addresses: Addresses::Full,
        })
    }

    /// What a sandbox must see beside the system: programs that lie elsewhere.
    pub(crate) fn read_only(&self) -> Vec<PathBuf> {
        let programs = [&self.chromium, &self.chromedriver, &self.xvfb];
        let elsewhere = programs.into_iter().filter(|path| !path.starts_with("/usr"));
        let mut paths: Vec<PathBuf> = elsewhere.filter_map(|path| path.parent()).map(Path::to_owned).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// The script runner: where it is, and where a sandbox sees it.
    pub(crate) fn script_runner(&self) -> Option<(PathBuf, PathBuf)> {
        // Looked at anew each time: it may be installed anew, and without it a sandbox starts all the same.
        let place = self.script_runner.as_deref()?;
        match script_runner::make_reachable(place, &self.data_dir) {
            Ok(place) => Some((place, PathBuf::from(script_runner::INSIDE))),
            Err(error) => {
                tracing::warn!(error, "a session starts without scripts");
                None
            }
        }
    }

    /// The folder of the script runner's Node, with `bin/node` in it, where sandboxes can reach it.
    #[must_use]
    pub fn node(&self) -> Option<PathBuf> {
        let (script_runner, _) = self.script_runner()?;
        Some(script_runner.join(script_runner::NODE).parent()?.parent()?.to_owned())
    }

    /// Where this Chromium looks for policies.
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

/// Chromium itself, where this system has it.
pub(crate) fn chromium() -> Result<PathBuf, EngineSetupError> {
    let known = CHROMIUM.iter().map(PathBuf::from).find(|path| path.is_file());
    let search = || find("Chromium", &["chromium", "chromium-browser", "google-chrome-stable"], "chromium");
    known.map_or_else(search, Ok)
}

pub(crate) fn chromedriver() -> Result<PathBuf, EngineSetupError> {
    find("chromedriver", &["chromedriver"], "chromium-driver")
}

fn find(what: &'static str, names: &[&str], package: &'static str) -> Result<PathBuf, EngineSetupError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let slots: Vec<PathBuf> = std::env::split_paths(&path).chain([PathBuf::from("/usr/bin")]).collect();
    let candidates = names.iter().flat_map(|name| slots.iter().map(move |place| place.join(name)));
    let found = candidates.filter(|path| path.is_absolute()).find(|path| path.is_file());
    // The real place: a link may lead out of what a sandbox sees.
    found.and_then(|path| path.canonicalize().ok()).ok_or(EngineSetupError::Missing { what, package })
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
    fn only_programs_outside_of_the_system_are_bound_in() {
        assert!(with("/usr/lib/chromium/chromium").read_only().is_empty());
        assert_eq!(with("/opt/google/chrome/chrome").read_only(), [Path::new("/opt/google/chrome")]);
    }

    #[test]
    fn policies_stand_where_each_build_looks_for_them() {
        for (chromium, start) in [
            ("/usr/lib/chromium/chromium", "/etc/chromium/"),
            ("/usr/lib/chromium-browser/chromium-browser", "/etc/chromium-browser/"),
            ("/opt/google/chrome/chrome", "/etc/opt/chrome/"),
        ] {
            assert!(with(chromium).policy_path().starts_with(start), "{chromium}");
        }
    }
}
