//! Ending: whatever is left of a sandbox, whole or half started, is found and removed.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::cgroup::Cgroups;
use crate::error::{EndError, Step, StepError};
use crate::host::{Host, SETSID};
use crate::layout;
use crate::network::UNSHARE;
use crate::process::{self, Identity};
use crate::record::Record;
use crate::uid;

/// How long killed processes may take to go. The kernel takes back a browser's memory in well under a second.
const PATIENCE: Duration = Duration::from_secs(5);

impl Host {
    /// Ends the sandbox of this id. Blocks.
    pub(crate) fn end_now(&self, id: &str) -> Result<(), EndError> {
        let dir = self.dir(id);
        let record = Record::read(&dir);
        let planned = self.controllers().plan(&format!("{}{id}", self.group_prefix()));
        let mut groups = vec![planned];
        // A host whose control groups have changed since: both places.
        groups.extend(record.iter().map(|record| record.cgroups.clone()));
        groups.dedup();
        let uids = if self.as_root() { uid::claimed_for(&dir) } else { Vec::new() };
        let deadline = Instant::now() + PATIENCE;
        let kill = || self.kill_all(id, &dir, record.as_ref(), &groups, &uids, deadline);
        kill()?;
        for group in &groups {
            if !group.remove_until(deadline)? {
                return Err(std::io::Error::from(ErrorKind::ResourceBusy)).step("remove the group of", &dir)?;
            }
        }
        remove(&dir)?;
        if record.as_ref().is_none_or(|record| record.processes.is_none()) {
            // A process has no command line for the instant in which it becomes bubblewrap, and is overlooked then. Either
            // it finds no program to bind any more and gives up, or it had bound it and is found now.
            kill()?;
        }
        // Last: a claim is what leads from a user to its sandbox.
        uids.into_iter().for_each(|user| uid::release(user, &dir));
        Ok(())
    }

    /// Kills what is left until nothing is.
    fn kill_all(
        &self,
        id: &str,
        dir: &Path,
        record: Option<&Record>,
        groups: &[Cgroups],
        uids: &[u32],
        deadline: Instant,
    ) -> Result<(), EndError> {
        loop {
            let mut left = handles(known(record).chain(groups.iter().flat_map(Cgroups::pids).filter_map(Identity::of)));
            if left.is_empty() {
                // Those that have not become a part of it yet, and the proof that there are none.
                left = handles(self.strays(dir, uids));
            }
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(EndError::StillThere { id: id.to_owned(), count: left.len(), seconds: PATIENCE.as_secs() });
            }
            for handle in &left {
                process::kill(handle).step("kill a process of", dir)?;
            }
            for handle in &left {
                process::wait_end(handle, deadline.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Every living process of the machine that belongs to the sandbox, by its user or by how it was started.
    fn strays(&self, dir: &Path, uids: &[u32]) -> Vec<Identity> {
        let (config, program) = (self.config(), dir.join("program"));
        let starters = [Path::new(SETSID), &config.setpriv, Path::new(UNSHARE), &program, &config.bwrap];
        let (starters, marker) = (starters.map(layout::bytes), layout::bytes(&program));
        let ours = geteuid().as_raw();
        process::living(|pid| match process::user(pid) {
            Some(user) if uids.contains(&user) => true,
            Some(user) => user == ours && process::has_marker(pid, &starters, marker),
            None => false,
        })
    }
}

/// The processes that were written down, the first one inside first: with it the kernel ends all others at once.
fn known(record: Option<&Record>) -> impl Iterator<Item = Identity> {
    record.and_then(Record::live_processes).into_iter().flat_map(|both| [both.init, both.monitor])
}

/// Handles on those that live.
fn handles(processes: impl IntoIterator<Item = Identity>) -> Vec<OwnedFd> {
    processes.into_iter().filter_map(|one| one.open()).filter(|handle| !process::ended(handle)).collect()
}

fn remove(dir: &Path) -> Result<(), StepError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).step("remove", dir),
        _ => Ok(()),
    }
}
