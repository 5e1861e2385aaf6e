//! Finds the processes, mounts, sockets and sandboxes of a server on this machine, by its directory and never by the name of
//! a program, because other tests and other users run browsers too.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use memchr::memmem;
use ulid::Ulid;

/// A process that belongs to a server: its command line, its mounts or its working directory name the server's
/// directory.
#[derive(Clone, Debug)]
pub struct Process {
    /// The process id.
    pub pid: i32,
    /// The command line.
    pub argv: Vec<String>,
}

impl Process {
    /// Returns true for the main process of a browser.
    pub fn is_browser(&self) -> bool {
        let program = self.argv.first().is_some_and(|program| program.ends_with("/chromium"));
        program && !self.argv.iter().any(|argument| argument.starts_with("--type="))
    }
}

/// Returns every running process that belongs to `dir`, except for the test itself.
pub fn processes_of(dir: &Path) -> Vec<Process> {
    let own = std::process::id().cast_signed();
    let numbered = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(numbered);
    let mut mounts = Mounts { dir, known: HashMap::new() };
    pids.filter(|pid| *pid != own).filter_map(|pid| process_of(dir, pid, &mut mounts)).collect()
}

fn process_of(dir: &Path, pid: i32, mounts: &mut Mounts<'_>) -> Option<Process> {
    let place = format!("/proc/{pid}");
    let command = fs::read(format!("{place}/cmdline")).ok()?;
    let cwd = || fs::read_link(format!("{place}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
    if !holds(&command, dir.as_os_str().as_bytes()) && !mounts.name_the_dir(&place) && !cwd() {
        return None;
    }
    // A zombie has none of these, so it is not found here; its parent must reap it.
    let words = command.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    Some(Process { pid, argv: words.filter(|word| !word.is_empty()).collect() })
}

/// The mounts of processes. Each mount namespace is read once, because the kernel needs long for a list of mounts.
struct Mounts<'a> {
    dir: &'a Path,
    known: HashMap<PathBuf, bool>,
}

impl Mounts<'_> {
    /// Returns true if mounts of the process at this place in `/proc` name the directory.
    fn name_the_dir(&mut self, place: &str) -> bool {
        let name = self.dir.as_os_str().as_bytes();
        let read = || fs::read(format!("{place}/mountinfo")).is_ok_and(|mounts| holds(&mounts, name));
        match fs::read_link(format!("{place}/ns/mnt")) {
            Ok(namespace) => *self.known.entry(namespace).or_insert_with(read),
            Err(_) => read(),
        }
    }
}

/// Returns the leftovers of a server or a cluster whose directory is `dir`, one line each, except for files outside of
/// sandboxes.
pub fn remains_of(dir: &Path) -> Vec<String> {
    remains_in(dir, None)
}

/// Does the same for a server whose network is that of this process, or the one of the test.
pub(super) fn remains_in(dir: &Path, network: Option<u32>) -> Vec<String> {
    let name = dir.as_os_str().as_bytes();
    let within = |file: &str| fs::read(file).is_ok_and(|bytes| holds(&bytes, name));
    let mut found: Vec<String> = processes_of(dir)
        .iter()
        .map(|process| format!("process {}: {}", process.pid, process.argv.join(" ")))
        .collect();
    found.extend(within("/proc/self/mountinfo").then(|| "a mount".to_owned()));
    let sockets = network.map_or_else(|| "/proc/net/unix".to_owned(), |process| format!("/proc/{process}/net/unix"));
    found.extend(within(&sockets).then(|| "a socket".to_owned()));
    let servers = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let sandboxes = servers.chain([dir.to_owned()]).filter_map(|server| sandboxes_of(&server.join("data")).ok());
    found.extend(sandboxes.flatten().map(|sandbox| format!("the directory {}", sandbox.display())));
    found.extend(
        claims_below(dir).iter().map(|(user, of)| format!("the claim of the user {user} for {}", of.display())),
    );
    found
}

/// Returns the directories of the browsers' sandboxes in a data directory, also of ended ones.
pub(super) fn sandboxes_of(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(data_dir.join("sandboxes")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.parse::<Ulid>().is_ok()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Returns the users that are claimed for sandboxes at or below a directory, with the directories of the sandboxes.
pub fn claims_below(dir: &Path) -> Vec<(String, PathBuf)> {
    let claims = fs::read_dir("/run/casement/uids").into_iter().flatten().flatten();
    let claim = |entry: fs::DirEntry| {
        let sandbox = PathBuf::from(fs::read_to_string(entry.path()).ok()?);
        sandbox.starts_with(dir).then(|| (entry.file_name().to_string_lossy().into_owned(), sandbox))
    };
    claims.filter_map(claim).collect()
}

/// Returns the control groups of sandboxes, of all servers of this machine. Each contains the name of its sandbox.
pub fn control_groups() -> Vec<PathBuf> {
    let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let ours = controllers.map(|entry| entry.path().join("casement")).chain(["/sys/fs/cgroup/casement".into()]);
    ours.filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten().map(|entry| entry.path()).collect()
}

fn holds(bytes: &[u8], name: &[u8]) -> bool {
    memmem::find(bytes, name).is_some()
}
