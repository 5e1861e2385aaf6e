//! Ends sandboxes: finds and removes all remains of a sandbox, also of one whose start was not completed.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
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

/// The timeout for killed processes to end. The kernel frees a browser's memory in much less than a second.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of processes handled at the same time, because each needs a descriptor.
const MAX_PARALLEL: usize = 64;

impl Host {
    /// Ends the sandbox of this id. Blocks.
    pub(crate) fn end_now(&self, id: &str) -> Result<(), EndError> {
        let dir = self.dir(id);
        let record = Record::read(&dir)?;
        let planned = self.controllers().plan(&format!("{}{id}", self.group_prefix()));
        let mut groups = vec![planned];
        // The control groups of the host may have changed since the start, so the planned and the recorded groups are
        // removed.
        groups.extend(record.iter().map(|record| record.cgroups.clone()));
        groups.dedup();
        let uids = if self.as_root() { uid::claimed_for(&dir)? } else { Vec::new() };
        let deadline = Instant::now() + TIMEOUT;
        let kill = || self.kill_all(id, &dir, record.as_ref(), &groups, &uids, deadline);
        kill()?;
        for group in &groups {
            if !group.remove_until(deadline)? {
                return Err(std::io::Error::from(ErrorKind::ResourceBusy)).step("remove the group of", &dir)?;
            }
        }
        remove(&dir)?;
        if record.as_ref().is_none_or(|record| record.processes.is_none()) {
            // A process has no command line at the instant in which it executes bubblewrap, so the first pass may miss
            // it. Either it does not find the program to mount and ends, or it has mounted the program and this pass
            // finds it.
            kill()?;
        }
        // Claims are released last, because they lead from a user to its sandbox.
        uids.into_iter().for_each(|user| uid::release(user, &dir));
        Ok(())
    }

    /// Kills processes until none is left.
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
            let left = self.remaining(dir, record, groups, uids).step("look for processes of", dir)?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(EndError::StillThere { id: id.to_owned(), count: left.len(), seconds: TIMEOUT.as_secs() });
            }
            for handle in &left {
                process::kill(handle).step("kill a process of", dir)?;
            }
            for handle in &left {
                process::wait_end(handle, deadline.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Returns handles on some of the remaining processes. The list is empty only if no process remains.
    fn remaining(
        &self,
        dir: &Path,
        record: Option<&Record>,
        groups: &[Cgroups],
        uids: &[u32],
    ) -> io::Result<Vec<OwnedFd>> {
        // When the first of these is killed, the kernel ends all others inside, so few remain for the search.
        let known = handles(known(record)?)?;
        if !known.is_empty() {
            return Ok(known);
        }
        let members = members(|| groups.iter().map(Cgroups::pids).try_fold(HashSet::new(), union))?;
        // Finds processes that have not joined the groups yet, and proves that no process remains.
        if members.is_empty() { handles(self.unlisted_processes(dir, uids)?) } else { Ok(members) }
    }

    /// Returns every living process of the machine that belongs to the sandbox, by its user or by its command line.
    fn unlisted_processes(&self, dir: &Path, uids: &[u32]) -> io::Result<Vec<Identity>> {
        let (config, program) = (self.config(), dir.join("program"));
        let starters = [Path::new(SETSID), &config.setpriv, Path::new(UNSHARE), &program, &config.bwrap];
        let (starters, marker) = (starters.map(layout::bytes), layout::bytes(&program));
        let ours = geteuid().as_raw();
        process::living(|pid| match process::user(pid)? {
            Some(user) if uids.contains(&user) => Ok(true),
            Some(user) => Ok(user == ours && process::has_marker(pid, &starters, marker)?),
            None => Ok(false),
        })
    }
}

/// Returns the recorded processes, the first one inside first: when it ends, the kernel ends all others.
fn known(record: Option<&Record>) -> io::Result<Vec<Identity>> {
    let live = record.map(Record::live_processes).transpose()?.flatten();
    Ok(live.into_iter().flat_map(|both| [both.init, both.monitor]).collect())
}

/// Returns handles on the living processes, or on some of them if they are many.
fn handles(processes: Vec<Identity>) -> io::Result<Vec<OwnedFd>> {
    processes.into_iter().filter_map(|one| living(one).transpose()).take(MAX_PARALLEL).collect()
}

fn living(process: Identity) -> io::Result<Option<OwnedFd>> {
    Ok(process.open()?.filter(|handle| !process::ended(handle)))
}

/// Returns handles on the living processes that `list` returns, or on some of them if they are many. A listed pid may
/// be reused before it is opened.
fn members(list: impl Fn() -> io::Result<HashSet<i32>>) -> io::Result<Vec<OwnedFd>> {
    let mut pids: Vec<i32> = list()?.into_iter().collect();
    // The oldest processes usually have the lowest pids, and their end may end others.
    pids.sort_unstable();
    let open = |pid| Ok(Identity::of(pid)?.map(living).transpose()?.flatten().map(|handle| (pid, handle)));
    let opened = pids.into_iter().filter_map(|pid| open(pid).transpose()).take(MAX_PARALLEL);
    let opened = opened.collect::<io::Result<Vec<_>>>()?;
    // While a handle is open, its pid is not reused: if the pid is still listed, the handle is on the listed process.
    let still = list()?;
    let listed = opened.into_iter().filter(|(pid, _)| still.contains(pid)).map(|(_, handle)| handle);
    Ok(listed.filter(|handle| !process::ended(handle)).collect())
}

fn union(all: HashSet<i32>, more: io::Result<HashSet<i32>>) -> io::Result<HashSet<i32>> {
    Ok(&all | &more?)
}

fn remove(dir: &Path) -> Result<(), StepError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).step("remove", dir),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::{Child, Command};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("600").spawn().expect("a child"))
        }

        fn pid(&self) -> i32 {
            self.0.id() as i32
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).ok();
        }
    }

    #[test]
    fn a_process_that_has_the_number_of_one_that_left_the_group_is_not_killed() {
        let (mut member, mut stranger) = (Sleeper::start(), Sleeper::start());
        let (pid, reused) = (member.pid(), stranger.pid());
        let looks = Cell::new(0);
        let handles = members(|| {
            looks.set(looks.get() + 1);
            Ok(if looks.get() == 1 { HashSet::from([pid, reused]) } else { HashSet::from([pid]) })
        });
        let handles = handles.expect("a look");
        assert_eq!(handles.len(), 1);
        process::kill(&handles[0]).expect("it is killed");
        member.0.wait().expect("it has ended");
        assert!(stranger.0.try_wait().expect("a status").is_none(), "the stranger lives");
    }

    #[test]
    fn a_process_that_came_into_the_group_since_is_left_to_the_next_look() {
        let (member, late) = (Sleeper::start(), Sleeper::start());
        let looks = Cell::new(0);
        let handles = members(|| {
            looks.set(looks.get() + 1);
            let all = [member.pid(), late.pid()];
            Ok(if looks.get() == 1 { HashSet::from([member.pid()]) } else { HashSet::from(all) })
        });
        let handles = handles.expect("a look");
        assert_eq!(handles.len(), 1);
    }

    #[test]
    fn processes_that_cannot_be_listed_are_not_taken_for_gone() {
        let looks = Cell::new(0);
        let member = Sleeper::start();
        for fails_at in [1, 2] {
            looks.set(0);
            let listed = members(|| {
                looks.set(looks.get() + 1);
                let failed = || io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
                (looks.get() != fails_at).then(|| HashSet::from([member.pid()])).ok_or_else(failed)
            });
            assert!(listed.is_err(), "look {fails_at}");
        }
    }

    #[test]
    fn of_many_processes_some_are_dealt_with_at_a_time() {
        let many: Vec<_> = (0..MAX_PARALLEL + 3).map(|_| Sleeper::start()).collect();
        let pids: HashSet<i32> = many.iter().map(Sleeper::pid).collect();
        let some = members(|| Ok(pids.clone())).expect("a look");
        assert_eq!(some.len(), MAX_PARALLEL);
        for handle in &some {
            process::kill(handle).expect("it is killed");
            assert!(process::wait_end(handle, Duration::from_secs(60)));
        }
        assert_eq!(members(|| Ok(pids.clone())).expect("a look").len(), 3, "the ended are in nobody's way");
    }
}
