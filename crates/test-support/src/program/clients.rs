//! Runs scripts with the public clients, in the versions that `crates/app/tests/clients` locks.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use super::leftovers::processes_of;
use super::{Server, until};

/// The timeout of one script on a busy machine, including the start of its browser and the installation of packages.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(900);

/// The folders of Python with the oldest and the newest supported version of the public client.
const OLDEST: &str = "venv";
const NEWEST: &str = "venv-newest";
/// The folder of Python with browser-use.
const BROWSER_USE: &str = "venv-browser-use";
/// The folder of Python with the fuzzer of the API.
const FUZZER: &str = "venv-fuzzer";
/// The folder of Python with the S3-compatible store.
const STORE: &str = "venv-store";

/// The variable with the folder for the records of the called methods of the public clients; none are made without it.
const METHODS: &str = "CASEMENT_TEST_METHODS";

/// The folder where the clients are installed.
pub struct Clients {
    home: PathBuf,
    python: &'static str,
}

/// A script that has run to its end.
pub struct Script {
    /// The directory where it ran, with the files that it wrote.
    pub dir: TempDir,
    /// The standard output.
    pub stdout: String,
}

impl Clients {
    /// Finds the clients that `cargo xtask test` installs.
    pub fn find() -> anyhow::Result<Self> {
        let home = home();
        // Written last by the installation.
        ensure!(
            home.join("installed").exists(),
            "the public clients are not installed in {}: run `cargo xtask test`, which does that",
            home.display()
        );
        Ok(Self { home: home.canonicalize()?, python: OLDEST })
    }

    /// Finds the clients, once with the oldest and once with the newest supported version of the Python client.
    pub fn of_both_versions() -> anyhow::Result<[Self; 2]> {
        Ok([Self::find()?, Self { python: NEWEST, ..Self::find()? }])
    }

    /// Finds browser-use, as a Python whose scripts can import it.
    pub fn browser_use() -> anyhow::Result<Self> {
        Ok(Self { python: BROWSER_USE, ..Self::find()? })
    }

    /// Finds the fuzzer of the API, as a Python whose scripts can import it.
    pub fn fuzzer() -> anyhow::Result<Self> {
        Ok(Self { python: FUZZER, ..Self::find()? })
    }

    /// Finds the newest supported version of the Python client.
    pub fn newest() -> anyhow::Result<Self> {
        Ok(Self { python: NEWEST, ..Self::find()? })
    }

    /// Returns the program of the S3-compatible store.
    pub fn store_program() -> anyhow::Result<PathBuf> {
        let program = home().join(STORE).join("bin/weed");
        ensure!(program.exists(), "there is no {}: `cargo xtask test` installs it", program.display());
        Ok(program.canonicalize()?)
    }

    /// Returns whether this is the newest supported version of the Python client.
    pub fn is_newest(&self) -> bool {
        self.python == NEWEST
    }

    /// Returns the folder of a Node package.
    pub fn node_package(&self, name: &str) -> PathBuf {
        self.home.join("node_modules").join(name)
    }

    /// Returns the folder of `python` with the Python clients.
    pub fn python_programs(&self) -> PathBuf {
        self.home.join(self.python).join("bin")
    }

    /// Returns the folder of a Python package.
    pub fn python_package(&self, name: &str) -> anyhow::Result<PathBuf> {
        let versions = fs::read_dir(self.home.join(self.python).join("lib"))?;
        let mut places = versions.flatten().map(|version| version.path().join("site-packages").join(name));
        places.find(|place| place.is_dir()).with_context(|| format!("there is no {name} for Python"))
    }

    /// Runs a file of this repository with `arguments`. `file` is relative to the top folder: `.mjs` runs with Node,
    /// `.py` with Python, `.sh` with sh. `CASEMENT_URL` and `CASEMENT_KEY` are the server's URL and key.
    pub fn run(&self, server: &Server, file: &str, arguments: &[&str]) -> anyhow::Result<Script> {
        let path = repository().join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().and_then(|name| name.to_str()).context("a file without a name")?;
        self.run_text(server, name, &text, arguments)
    }

    /// Runs the program with the Rust clients.
    pub fn run_rust(&self, arguments: &[&str]) -> anyhow::Result<Script> {
        let mut command = Command::new(self.home.join("rust-clients"));
        command.args(arguments);
        finish("rust-clients", own_dir()?, command)
    }

    /// Runs a script that is given as text, under this name.
    pub fn run_text(&self, server: &Server, name: &str, text: &str, arguments: &[&str]) -> anyhow::Result<Script> {
        let dir = own_dir()?;
        // Node looks for packages beside the script, and upwards.
        std::os::unix::fs::symlink(self.home.join("node_modules"), dir.path().join("node_modules"))?;
        let script = dir.path().join(name);
        fs::write(&script, text)?;
        let program = match script.extension().and_then(|extension| extension.to_str()) {
            Some("mjs") => self.home.join("node"),
            Some("py") => self.python_programs().join("python"),
            Some("sh") => PathBuf::from("sh"),
            _ => bail!("{name}: neither .mjs nor .py nor .sh"),
        };
        let mut command = Command::new(program);
        if let Some(folder) = std::env::var_os(METHODS) {
            record(&mut command, &script, text, &folder)?;
        }
        command.arg(&script).args(arguments);
        command.env("CASEMENT_URL", server.url()).env("CASEMENT_KEY", server.key());
        finish(name, dir, command)
    }
}

impl Script {
    /// Returns the last line of the output, which must be JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).with_context(|| format!("the last line is not JSON:\n{}", self.stdout))
    }

    /// Returns the content of a file that the script wrote.
    pub fn file(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        fs::read(self.dir.path().join(name)).with_context(|| format!("the script wrote no {name}"))
    }
}

fn home() -> PathBuf {
    let default = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients"));
    std::env::var_os("CASEMENT_TEST_CLIENTS").map_or_else(default, PathBuf::from)
}

/// Returns the top folder of the checkout.
pub fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Makes a command that runs a script of a public client with the program beside the scripts that writes down the
/// methods.
fn record(command: &mut Command, script: &Path, text: &str, folder: &OsStr) -> anyhow::Result<()> {
    let uses = |imports: &[&str]| imports.iter().any(|import| text.contains(import));
    let recorder = match script.extension().and_then(|extension| extension.to_str()) {
        Some("py") if uses(&["import kernel", "from kernel import"]) => "kernel_record.py",
        Some("mjs") if uses(&["from '@onkernel/sdk'"]) => {
            command.arg("--import");
            "kernel_record.mjs"
        }
        _ => return Ok(()),
    };
    let copy = script.with_file_name(recorder);
    fs::copy(repository().join("crates/app/tests/scripts").join(recorder), &copy)
        .context("cannot copy the recorder")?;
    command.arg(copy).env(METHODS, folder);
    Ok(())
}

fn own_dir() -> anyhow::Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("casement-client-").tempdir_in("/tmp")?)
}

/// Runs a command that must succeed.
fn finish(name: &str, dir: TempDir, mut command: Command) -> anyhow::Result<Script> {
    let status = run_in(dir.path(), &mut command).with_context(|| format!("{name} {}", output_of(dir.path())))?;
    ensure!(status.success(), "{name}: {status} {}", output_of(dir.path()));
    let stdout = fs::read_to_string(dir.path().join("stdout"))?;
    Ok(Script { dir, stdout })
}

/// Runs a command to its end, or to the timeout. Ends everything that it started.
fn run_in(dir: &Path, command: &mut Command) -> anyhow::Result<ExitStatus> {
    let output = |name: &str| File::create(dir.join(name));
    command.current_dir(dir).stdin(Stdio::null()).stdout(output("stdout")?).stderr(output("stderr")?);
    // A browser that the script starts has its profile below TMPDIR, so `processes_of` finds it.
    let mut child = command.env("TMPDIR", dir).process_group(0).spawn().context("cannot start it")?;
    let ended = until("the script ends", SCRIPT_TIMEOUT, || child.try_wait().transpose());
    if ended.is_err()
        && let Some(group) = Pid::from_raw(child.id().cast_signed())
    {
        let _ = kill_process_group(group, Signal::KILL);
        child.wait()?;
    }
    for process in processes_of(dir) {
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(ended??)
}

fn output_of(dir: &Path) -> String {
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    format!("output:\n{}\n{}", read("stdout"), read("stderr"))
}
