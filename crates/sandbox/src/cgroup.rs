//! Control groups: limits of memory, processes and processor time for one sandbox, if the host allows groups.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Step, StepError};
use crate::own_groups::OwnGroups;
use crate::process::Identity;
use crate::record::MemoryLimit;

/// The directory that contains the groups of all sandboxes.
const ROOT_GROUP: &str = "casement";
/// The group of the server itself, below a delegated group of version 2. `casement doctor` proposes this name for
/// systemd's `DelegateSubgroup=`.
const SERVER_GROUP: &str = "server";
/// The group of a sandbox's processes, below the sandbox's group, in version 2.
const PROCESS_GROUP: &str = "inside";
/// The prefix of the group of a trial; the process id of the trial follows.
const TRIAL_PREFIX: &str = "trial-";
/// The processor weight of all sandboxes together, which have equal weights among each other. It equals a nice value
/// of 5: a third of the share of other programs. The units are those of the two versions, with the defaults 1024 and
/// 100.
const SHARES_V1: &str = "335";
const WEIGHT_V2: &str = "33";
/// The timeout for the removal of a trial's group and for moving processes that fork.
const TIMEOUT: Duration = Duration::from_secs(1);
const GATHERINGS: usize = 16;

/// The directories in which this host allows groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controllers {
    v2: Option<PathBuf>,
    v1_memory: Option<PathBuf>,
    v1_pids: Option<PathBuf>,
    v1_cpu: Option<PathBuf>,
}

/// The groups of one sandbox. They may not exist yet, or may be removed already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroups {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    /// Version 2: the group below `memory` that contains the processes. A program inside can mount its own group as
    /// the root of a hierarchy and, if server and sandbox share a user, remove a limit that is set there. The groups
    /// above are not visible to it.
    #[serde(default)]
    inside: Option<PathBuf>,
    #[serde(default)]
    cpu: Option<PathBuf>,
}

impl Controllers {
    /// Finds the directories in which groups can be created, and creates [`ROOT_GROUP`] there.
    pub(crate) fn find() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let v2 = mounts.iter().filter(|m| m.kind == "cgroup2").find_map(|m| find_v2(&m.at, own?));
        let own_groups = OwnGroups::find();
        let v1 = |controller: &str, limited: Option<&Path>| {
            let mount = mounts.iter().find(|m| m.kind == "cgroup" && m.options.split(',').any(|o| o == controller))?;
            // A limit of the service holds only for groups below its own.
            let ours = limited.unwrap_or(&mount.at).join(ROOT_GROUP);
            make(&ours).ok().filter(|()| may_write(&ours)).map(|()| ours)
        };
        match v2 {
            Some(v2) => Self { v2: Some(v2), ..Self::default() },
            None => {
                let v1_cpu = v1("cpu", None).filter(|ours| fs::write(ours.join("cpu.shares"), SHARES_V1).is_ok());
                let limits = Self {
                    v1_memory: v1("memory", own_groups.v1_memory_limit()),
                    v1_pids: v1("pids", own_groups.v1_pids_limit()),
                    ..Self::default()
                };
                let all = Self { v1_cpu, ..limits.clone() };
                all.usable().or_else(|| limits.usable()).unwrap_or_default()
            }
        }
    }

    /// Returns these controllers if a process can be moved into a group created there. A writable directory is not
    /// enough: moving a process needs rights over the common ancestor of its old and its new group, and both must be in
    /// this namespace.
    fn usable(self) -> Option<Self> {
        self.remove_stale();
        // It is killed while it may still be starting: a preloaded library of this process could leave a lock behind.
        let mut trial = Command::new("cat");
        let mut process = trial.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).spawn().ok()?;
        let pid = process.id();
        let groups = self.plan(&format!("{TRIAL_PREFIX}{pid}"));
        let usable = groups.make(self.memory(), 64 << 20, 16).and_then(|()| groups.join(pid as i32));
        process.kill().and_then(|()| process.wait()).ok();
        let removed = groups.remove_until(Instant::now() + TIMEOUT);
        (usable.is_ok() && matches!(removed, Ok(true))).then_some(self)
    }

    /// Removes the groups of trials whose process no longer exists because it was killed.
    fn remove_stale(&self) {
        let pids = self.existing(TRIAL_PREFIX).into_iter().filter_map(|pid| pid.parse::<i32>().ok());
        let over = pids.filter(|pid| matches!(Identity::of(*pid), Ok(None)));
        over.for_each(|pid| drop(self.plan(&format!("{TRIAL_PREFIX}{pid}")).remove()));
    }

    pub(crate) fn memory(&self) -> MemoryLimit {
        match (&self.v2, &self.v1_memory) {
            (Some(_), _) => MemoryLimit::CgroupV2,
            (None, Some(_)) => MemoryLimit::CgroupV1,
            (None, None) => MemoryLimit::None,
        }
    }

    /// Returns true if the processor time is shared equally between sandboxes that need it.
    pub(crate) fn share_processors(&self) -> bool {
        let weighs = |base: &PathBuf| base.join("cpu.weight").exists();
        self.v1_cpu.is_some() || self.v2.as_ref().is_some_and(weighs)
    }

    /// Returns the groups for the sandbox of this name, without creating them.
    pub(crate) fn plan(&self, name: &str) -> Cgroups {
        let below = |base: &Option<PathBuf>| base.as_ref().map(|base| base.join(name));
        match &self.v2 {
            Some(base) => {
                let group = base.join(name);
                Cgroups { inside: Some(group.join(PROCESS_GROUP)), memory: Some(group), ..Cgroups::default() }
            }
            None => Cgroups {
                memory: below(&self.v1_memory),
                pids: below(&self.v1_pids),
                cpu: below(&self.v1_cpu),
                inside: None,
            },
        }
    }

    /// Returns the existing groups whose name begins with `prefix`, by the rest of their name.
    pub(crate) fn existing(&self, prefix: &str) -> HashSet<String> {
        let bases = [&self.v2, &self.v1_memory, &self.v1_pids, &self.v1_cpu].into_iter().flatten();
        let entries = bases.filter_map(|base| fs::read_dir(base).ok()).flatten().flatten();
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix(prefix)?.to_owned())).collect()
    }
}

impl Cgroups {
    /// Creates the groups with their limits.
    pub(crate) fn make(&self, kind: MemoryLimit, memory_bytes: u64, max_processes: u32) -> Result<(), StepError> {
        if let Some(group) = &self.memory {
            make(group)?;
            match kind {
                MemoryLimit::CgroupV2 => {
                    write(&group.join("memory.max"), &memory_bytes.to_string())?;
                    write_if_there(&group.join("memory.swap.max"), "0")?;
                    write_if_there(&group.join("pids.max"), &max_processes.to_string())?;
                    // Allows only the group of the processes. Groups created by a program inside would prevent the
                    // removal.
                    write_if_there(&group.join("cgroup.max.descendants"), "1")?;
                }
                MemoryLimit::CgroupV1 | MemoryLimit::None => {
                    write(&group.join("memory.limit_in_bytes"), &memory_bytes.to_string())?;
                    write_if_there(&group.join("memory.memsw.limit_in_bytes"), &memory_bytes.to_string())?;
                }
            }
        }
        if let Some(group) = &self.pids {
            make(group)?;
            write(&group.join("pids.max"), &max_processes.to_string())?;
        }
        [&self.inside, &self.cpu].into_iter().flatten().try_for_each(|group| make(group))
    }

    /// Moves a process into the groups. Children that it starts later are in the groups too.
    pub(crate) fn join(&self, pid: i32) -> Result<(), StepError> {
        let limits = self.memory.iter().filter(|_| self.inside.is_none());
        let mut groups = self.inside.iter().chain(limits).chain(&self.pids).chain(&self.cpu);
        groups.try_for_each(|group| write(&group.join("cgroup.procs"), &pid.to_string()))
    }

    /// Returns the processes in the groups.
    pub(crate) fn pids(&self) -> io::Result<HashSet<i32>> {
        let mut pids = HashSet::new();
        for group in self.each() {
            match fs::read_to_string(group.join("cgroup.procs")) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(pids)
    }

    /// Returns true if the kernel has killed a process of the group because its memory was full.
    pub(crate) fn has_oom_kill(&self) -> bool {
        let Some(group) = &self.memory else { return false };
        let texts = ["memory.events", "memory.oom_control"].map(|name| fs::read_to_string(group.join(name)));
        let mut lines = texts.iter().flatten().flat_map(|text| text.lines());
        lines.any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
    }

    /// Returns the name of the group that limits the memory.
    pub(crate) fn memory_name(&self) -> Option<&str> {
        self.memory.as_deref()?.file_name()?.to_str()
    }

    /// Returns a descriptor that becomes readable when the memory is full, and has to be read then; `None` without a
    /// limit.
    pub(crate) fn memory_full(&self) -> io::Result<Option<OwnedFd>> {
        let Some(group) = &self.memory else { return Ok(None) };
        let events = group.join("memory.events");
        if events.exists() {
            let inotify = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
            inotify::add_watch(&inotify, &events, inotify::WatchFlags::MODIFY)?;
            return Ok(Some(inotify));
        }
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let control = fs::File::open(group.join("memory.oom_control"))?;
        let order = format!("{} {}", eventfd.as_raw_fd(), control.as_raw_fd());
        fs::write(group.join("cgroup.event_control"), order)?;
        Ok(Some(eventfd))
    }

    /// Removes the groups, which must be empty. Missing groups are no error. Returns false if the kernel still uses one
    /// of them.
    pub(crate) fn remove(&self) -> Result<bool, StepError> {
        for group in self.each() {
            match fs::remove_dir(group) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) if e.kind() == ErrorKind::ResourceBusy => return Ok(false),
                Err(e) => return Err(e).step("remove", group),
            }
        }
        Ok(true)
    }

    /// Removes the groups, retrying until the deadline.
    pub(crate) fn remove_until(&self, deadline: Instant) -> Result<bool, StepError> {
        while !self.remove()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            // The kernel releases a group shortly after its last process has ended, without a notification.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }

    /// Returns the groups, children before parents.
    fn each(&self) -> impl Iterator<Item = &PathBuf> {
        self.inside.iter().chain(&self.memory).chain(&self.pids).chain(&self.cpu)
    }
}

/// One line of `mountinfo`.
pub(crate) struct Mount {
    /// The path of what is mounted, in its file system.
    pub(crate) root: PathBuf,
    pub(crate) at: PathBuf,
    pub(crate) kind: String,
    pub(crate) options: String,
}

impl Mount {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, at) = (before.next()?.into(), before.next()?.into());
        let mut after = after.split(' ');
        let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
        Some(Self { root, at, kind: kind.to_owned(), options: options.to_owned() })
    }
}

/// Finds the nearest group, at or above this process's own one, in which groups with a memory limit can be created.
fn find_v2(mount: &Path, own: &str) -> Option<PathBuf> {
    let own = mount.join(own);
    let above = own.ancestors().take_while(|group| group.starts_with(mount)).find_map(usable_v2);
    // systemd starts a service in the group that it delegates to the service (before version 254 always), and container
    // runtimes start the first process in such a group.
    above.or_else(|| move_to_child_group(&own).and_then(|()| usable_v2(&own)))
}

fn usable_v2(group: &Path) -> Option<PathBuf> {
    // A group that contains processes cannot delegate controllers: the write fails, and the next group above is tried.
    enable_controllers(group)?;
    let ours = group.join(ROOT_GROUP);
    make(&ours).ok()?;
    write_if_there(&ours.join("cpu.weight"), WEIGHT_V2).ok()?;
    enable_controllers(&ours)?;
    let found = Controllers { v2: Some(ours), ..Controllers::default() };
    found.usable()?.v2
}

/// Moves all processes of this process's group into a child group, so that the group can delegate controllers. Does
/// that only if the group was delegated to this process or contains no other process.
fn move_to_child_group(own: &Path) -> Option<()> {
    if !is_delegated(own) && processes(own) != [std::process::id()] {
        return None;
    }
    let aside = own.join(SERVER_GROUP);
    make(&aside).ok()?;
    for _ in 0..GATHERINGS {
        let here = processes(own);
        if here.is_empty() {
            return Some(());
        }
        // The write fails for a process that has ended meanwhile, which is no error.
        here.iter().for_each(|pid| drop(fs::write(aside.join("cgroup.procs"), pid.to_string())));
    }
    None
}

/// Returns true if systemd has marked the group as delegated.
fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 8];
    rustix::fs::getxattr(group, "user.delegate", &mut value).is_ok_and(|length| value[..length] == *b"1")
}

/// Returns true if the error means that a group does not exist, or was removed while its file was open.
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV))
}

fn processes(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Enables the memory controller for child groups, and the process and processor controllers if possible.
fn enable_controllers(group: &Path) -> Option<()> {
    let control = group.join("cgroup.subtree_control");
    let has_memory = || fs::read_to_string(&control).is_ok_and(|text| text.split_whitespace().any(|c| c == "memory"));
    if !has_memory() {
        fs::write(&control, "+memory").ok()?;
    }
    // These controllers are optional: a limit of processes is set inside too.
    for controller in ["+pids", "+cpu"] {
        fs::write(&control, controller).ok();
    }
    has_memory().then_some(())
}

/// Returns true if groups can be created in the directory, which another user may have created.
fn may_write(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

fn make(dir: &Path) -> Result<(), StepError> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e).step("make", dir),
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), StepError> {
    fs::write(path, text).step("write", path)
}

fn write_if_there(path: &Path, text: &str) -> Result<(), StepError> {
    if path.exists() { write(path, text) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_version_2_stand_above_the_group_of_the_processes() -> anyhow::Result<()> {
        let base = tempfile::tempdir()?;
        let host = Controllers { v2: Some(base.path().to_owned()), ..Controllers::default() };
        let group = base.path().join("a");
        for file in ["memory.swap.max", "pids.max", "cgroup.max.descendants"] {
            fs::create_dir_all(&group)?;
            fs::write(group.join(file), "max")?;
        }
        let groups = host.plan("a");
        groups.make(MemoryLimit::CgroupV2, 4096, 7)?;
        groups.join(42)?;
        let read = |file: &str| fs::read_to_string(group.join(file)).ok();
        let limits = ["memory.max", "memory.swap.max", "pids.max", "cgroup.max.descendants"].map(read);
        assert_eq!(limits.map(Option::unwrap_or_default), ["4096", "0", "7", "1"]);
        assert_eq!((read("inside/cgroup.procs").as_deref(), read("cgroup.procs")), (Some("42"), None));
        assert_eq!(groups.pids()?, [42].into());
        Ok(())
    }

    #[test]
    fn the_groups_of_an_older_record_are_understood() -> anyhow::Result<()> {
        let groups: Cgroups = serde_json::from_str(r#"{"memory": "/m", "pids": null}"#)?;
        assert_eq!(groups.each().collect::<Vec<_>>(), [Path::new("/m")]);
        Ok(())
    }

    #[test]
    fn a_sandbox_has_a_group_for_each_controller_of_version_1_and_is_put_in_all_of_them() -> anyhow::Result<()> {
        let base = tempfile::tempdir()?;
        let at = |controller: &str| Some(base.path().join(controller));
        let host = Controllers { v2: None, v1_memory: at("memory"), v1_pids: at("pids"), v1_cpu: at("cpu") };
        for controller in ["memory", "pids", "cpu"] {
            fs::create_dir(base.path().join(controller))?;
        }
        let groups = host.plan("a");
        groups.make(MemoryLimit::CgroupV1, 4096, 7)?;
        groups.join(42)?;
        let read = |file: &str| fs::read_to_string(base.path().join(file)).unwrap_or_default();
        let joined = ["memory", "pids", "cpu"].map(|controller| read(&format!("{controller}/a/cgroup.procs")));
        assert_eq!(
            (joined, read("memory/a/memory.limit_in_bytes").as_str()),
            (["42", "42", "42"].map(Into::into), "4096")
        );
        assert_eq!(host.existing(""), ["a".to_owned()].into());
        Ok(())
    }

    #[test]
    fn members_that_cannot_be_listed_are_not_none() -> anyhow::Result<()> {
        let base = tempfile::tempdir()?;
        let host = Controllers { v1_memory: Some(base.path().to_owned()), ..Controllers::default() };
        let groups = host.plan("a");
        assert_eq!(groups.pids()?, [].into(), "a group that is gone has none");
        fs::create_dir_all(base.path().join("a/cgroup.procs"))?;
        assert!(groups.pids().is_err());
        Ok(())
    }

    #[test]
    fn the_group_of_a_trial_that_was_cut_short_goes_before_the_next() -> anyhow::Result<()> {
        let base = tempfile::tempdir()?;
        let host = Controllers { v2: Some(base.path().to_owned()), ..Controllers::default() };
        let mut over = Command::new("true").spawn()?;
        over.wait()?;
        let [over, goes_on] = [over.id(), std::process::id()].map(|pid| format!("trial-{pid}"));
        for name in [over.as_str(), &goes_on, "trial-and-error", "0123456789abcdef-a"] {
            fs::create_dir_all(base.path().join(name).join(PROCESS_GROUP))?;
        }
        host.remove_stale();
        assert!(!base.path().join(&over).exists());
        assert_eq!(host.existing(""), [goes_on, "trial-and-error".to_owned(), "0123456789abcdef-a".to_owned()].into());
        Ok(())
    }

    #[test]
    fn processes_of_others_are_not_moved_out_of_a_group_that_is_not_ours() -> anyhow::Result<()> {
        let own = tempfile::tempdir()?;
        fs::write(own.path().join("cgroup.procs"), format!("1\n{}\n", std::process::id()))?;
        assert_eq!(move_to_child_group(own.path()), None);
        assert!(!own.path().join(SERVER_GROUP).exists());
        Ok(())
    }

    #[test]
    fn a_place_that_takes_no_process_is_not_used() -> anyhow::Result<()> {
        let base = tempfile::tempdir()?;
        let host = Controllers { v2: Some(base.path().join("gone")), ..Controllers::default() };
        assert!(host.usable().is_none());
        Ok(())
    }
}
