//! Checks that nothing of a cluster is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::Network;
use crate::program::{remains_of, until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Fails, when it is dropped, if something of the cluster is left: a process, a mount, a socket, a sandbox, or a network
/// that processes or threads are in.
pub(super) struct Remains {
    root: PathBuf,
    namespaces: Vec<PathBuf>,
}

impl Remains {
    pub(super) fn new(root: &Path, network: &Network) -> Self {
        Self { root: root.to_owned(), namespaces: network.namespaces() }
    }

    fn found(&self) -> Vec<String> {
        let processes = tasks_in(Path::new("/proc"));
        let inside = processes.into_iter().chain(tasks_in(Path::new("/proc/self/task")));
        let is_ours = |namespace: PathBuf| self.namespaces.contains(&namespace);
        let inside = inside.filter(|task| fs::read_link(task.join("ns/net")).is_ok_and(is_ours));
        let mut found = remains_of(&self.root);
        found.extend(inside.map(|task| format!("{} is in the network of a host", task.display())));
        found
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        let left = until("nothing of the cluster is left", TIMEOUT, || self.found().is_empty().then_some(()));
        if let Err(error) = left {
            let failure = format!("{error:#}; left behind:\n  {}", self.found().join("\n  "));
            if thread::panicking() {
                eprintln!("{failure}");
            } else {
                panic!("{failure}");
            }
        }
    }
}

/// Returns the processes or threads in a folder of `/proc`.
fn tasks_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_number = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    entries.filter(is_number).map(|entry| entry.path()).collect()
}
