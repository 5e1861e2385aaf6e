//! Control groups: the memory and the number of processes of one sandbox, where the host lets us limit them.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;
use serde::{Deserialize, Serialize};

use crate::error::{Step, StepError};
use crate::record::MemoryLimit;

/// The directory that holds the groups of all sandboxes.
const OURS: &str = "casement";
/// Below a group of version 2 that was delegated to us: where we go ourselves. The name that `casement doctor` proposes for
/// systemd's `DelegateSubgroup=`.
const ASIDE: &str = "server";
/// Below a sandbox's group of version 2: where its processes are.
const INSIDE: &str = "inside";
/// How long the group of a trial may take to go, and how often processes that fork are gathered.
const PATIENCE: Duration = Duration::from_secs(1);
const GATHERINGS: usize = 16;

/// Where this host lets us make groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controllers {
    v2: Option<PathBuf>,
    v1_memory: Option<PathBuf>,
    v1_pids: Option<PathBuf>,
}

/// The groups of one sandbox. They may not have been made yet, or be gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroups {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    /// Version 2: the group below `memory` that holds the processes. A program inside can make its own group the root of what
    /// it mounts; where server and sandbox share a user it could then lift a limit that stood there. Those above it cannot be seen.
    #[serde(default)]
    inside: Option<PathBuf>,
}

impl Controllers {
    /// Looks for a place where groups can be made, and makes the directory that will hold them.
    pub(crate) fn find() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let v2 = mounts.iter().filter(|m| m.kind == "cgroup2").find_map(|m| find_v2(&m.at, own?));
        let v1 = |controller: &str| {
            let mount = mounts.iter().find(|m| m.kind == "cgroup" && m.options.split(',').any(|o| o == controller))?;
            let ours = mount.at.join(OURS);
            make(&ours).ok().filter(|()| may_write(&ours)).map(|()| ours)
        };
        match v2 {
            Some(v2) => Self { v2: Some(v2), ..Self::default() },
            None => Self { v2: None, v1_memory: v1("memory"), v1_pids: v1("pids") }.tried().unwrap_or_default(),
        }
    }

    /// These, if a process can be put in a group that is made here. Whether a directory may be written does not tell: to move a
    /// process takes rights over the group above its old and its new one, too, and both must be in our namespace.
    fn tried(self) -> Option<Self> {
        let mut process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().ok()?;
        let pid = process.id();
        let groups = self.plan(&format!("trial-{pid}"));
        let tried = groups.make(self.memory(), 64 << 20, 16).and_then(|()| groups.join(pid as i32));
        process.kill().and_then(|()| process.wait()).ok();
        let removed = groups.remove_until(Instant::now() + PATIENCE);
        (tried.is_ok() && matches!(removed, Ok(true))).then_some(self)
    }

    pub(crate) fn memory(&self) -> MemoryLimit {
        match (&self.v2, &self.v1_memory) {
            (Some(_), _) => MemoryLimit::CgroupV2,
            (None, Some(_)) => MemoryLimit::CgroupV1,
            (None, None) => MemoryLimit::None,
        }
    }

    /// The groups that the sandbox of this name shall have.
    pub(crate) fn plan(&self, name: &str) -> Cgroups {
        let below = |base: &Option<PathBuf>| base.as_ref().map(|base| base.join(name));
        match &self.v2 {
            Some(base) => {
                let group = base.join(name);
                Cgroups { inside: Some(group.join(INSIDE)), memory: Some(group), pids: None }
            }
            None => Cgroups { memory: below(&self.v1_memory), pids: below(&self.v1_pids), inside: None },
        }
    }

    /// The groups that are there and whose name begins with `prefix`, by the rest of their name.
    pub(crate) fn left_over(&self, prefix: &str) -> HashSet<String> {
        let bases = [&self.v2, &self.v1_memory, &self.v1_pids].into_iter().flatten();
        let entries = bases.filter_map(|base| fs::read_dir(base).ok()).flatten().flatten();
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix(prefix)?.to_owned())).collect()
    }
}

impl Cgroups {
    /// Makes the groups with their limits.
    pub(crate) fn make(&self, kind: MemoryLimit, memory_bytes: u64, max_processes: u32) -> Result<(), StepError> {
        if let Some(group) = &self.memory {
            make(group)?;
            match kind {
                MemoryLimit::CgroupV2 => {
                    write(&group.join("memory.max"), &memory_bytes.to_string())?;
                    write_if_there(&group.join("memory.swap.max"), "0")?;
                    write_if_there(&group.join("pids.max"), &max_processes.to_string())?;
                    // No more than the one for the processes: what a program inside made would be in the way of the removal.
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
        self.inside.as_deref().map_or(Ok(()), make)
    }

    /// Puts a process in. Its later children are born in.
    pub(crate) fn join(&self, pid: i32) -> Result<(), StepError> {
        let limits = self.memory.iter().filter(|_| self.inside.is_none());
        let mut groups = self.inside.iter().chain(limits).chain(&self.pids);
        groups.try_for_each(|group| write(&group.join("cgroup.procs"), &pid.to_string()))
    }

    /// The processes in the groups now.
    pub(crate) fn pids(&self) -> HashSet<i32> {
        let texts = self.each().filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
        texts.flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>()).collect()
    }

    /// Whether the kernel has killed a process of the group because its memory was full.
    pub(crate) fn has_oom_kill(&self) -> bool {
        let Some(group) = &self.memory else { return false };
        let texts = ["memory.events", "memory.oom_control"].map(|name| fs::read_to_string(group.join(name)));
        let mut lines = texts.iter().flatten().flat_map(|text| text.lines());
        lines.any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
    }

    /// The name of the group that limits the memory.
    pub(crate) fn memory_name(&self) -> Option<&str> {
        self.memory.as_deref()?.file_name()?.to_str()
    }

    /// A descriptor that becomes readable when the memory is full; to be read then. `None` without a limit.
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

    /// Removes the groups, which must be empty. Gone already is fine; `Ok(false)`: the kernel still holds one.
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

    /// The same until a moment that may be waited for.
    pub(crate) fn remove_until(&self, deadline: Instant) -> Result<bool, StepError> {
        while !self.remove()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            // The kernel takes a moment to let go of a group whose last process has just ended, and tells nobody.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }

    /// Those below before those above.
    fn each(&self) -> impl Iterator<Item = &PathBuf> {
        self.inside.iter().chain(&self.memory).chain(&self.pids)
    }
}

/// One line of `mountinfo`.
struct Mount {
    at: PathBuf,
    kind: String,
    options: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let at = before.split(' ').nth(4)?.into();
        let mut after = after.split(' ');
        let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
        Some(Self { at, kind: kind.to_owned(), options: options.to_owned() })
    }
}

/// The nearest group above us (or ours) in which we may make groups with a memory limit.
fn find_v2(mount: &Path, own: &str) -> Option<PathBuf> {
    let own = mount.join(own);
    let above = own.ancestors().take_while(|group| group.starts_with(mount)).find_map(usable_v2);
    // A service that systemd delegates a group to is put in that group itself (before version 254 always), and so is the
    // first process of a container.
    above.or_else(|| step_aside(&own).and_then(|()| usable_v2(&own)))
}

fn usable_v2(group: &Path) -> Option<PathBuf> {
    // A group that holds processes itself cannot hand controllers down; the write then fails and the next one up is tried.
    hands_down(group)?;
    let ours = group.join(OURS);
    make(&ours).ok()?;
    hands_down(&ours)?;
    let found = Controllers { v2: Some(ours), ..Controllers::default() };
    found.tried()?.v2
}

/// Moves every process of our own group to one below, so that ours can hand controllers down. Only if the group is ours to
/// arrange: it was delegated, or nobody else is in it.
fn step_aside(own: &Path) -> Option<()> {
    if !is_delegated(own) && processes(own) != [std::process::id()] {
        return None;
    }
    let aside = own.join(ASIDE);
    make(&aside).ok()?;
    for _ in 0..GATHERINGS {
        let here = processes(own);
        if here.is_empty() {
            return Some(());
        }
        // One that has ended meanwhile is no more in the way.
        here.iter().for_each(|pid| drop(fs::write(aside.join("cgroup.procs"), pid.to_string())));
    }
    None
}

/// Whether systemd has marked it as one that it leaves to whoever runs in it.
fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 8];
    rustix::fs::getxattr(group, "user.delegate", &mut value).is_ok_and(|length| value[..length] == *b"1")
}

fn processes(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Sees to it that the groups below have a memory controller.
fn hands_down(group: &Path) -> Option<()> {
    let control = group.join("cgroup.subtree_control");
    let has_memory = || fs::read_to_string(&control).is_ok_and(|text| text.split_whitespace().any(|c| c == "memory"));
    if !has_memory() {
        fs::write(&control, "+memory").ok()?;
    }
    // Processes are limited inside too, so that a host without this controller will do.
    fs::write(&control, "+pids").ok();
    has_memory().then_some(())
}

/// Whether groups may be made in it: it may be there already, made by another user.
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
        assert_eq!(groups.pids(), [42].into());
        Ok(())
    }

    #[test]
    fn the_groups_of_an_older_record_are_understood() -> anyhow::Result<()> {
        let groups: Cgroups = serde_json::from_str(r#"{"memory": "/m", "pids": null}"#)?;
        assert_eq!(groups.each().collect::<Vec<_>>(), [Path::new("/m")]);
        Ok(())
    }

    #[test]
    fn processes_of_others_are_not_moved_out_of_a_group_that_is_not_ours() -> anyhow::Result<()> {
        let own = tempfile::tempdir()?;
        fs::write(own.path().join("cgroup.procs"), format!("1\n{}\n", std::process::id()))?;
        assert_eq!(step_aside(own.path()), None);
        assert!(!own.path().join(ASIDE).exists());
        Ok(())
    }

    #[test]
    fn a_place_that_takes_no_process_is_not_used() -> anyhow::Result<()> {
        let base = tempfile::tempdir()?;
        let host = Controllers { v2: Some(base.path().join("gone")), ..Controllers::default() };
        assert!(host.tried().is_none());
        Ok(())
    }
}
