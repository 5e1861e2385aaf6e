//! The limits of the control groups that contain this process: those of a container, a service or a slice.
//!
//! A limit of a group holds for all groups below it, so the own group and each group above it count, as far as they are
//! mounted here. Both versions of control groups can be present, each with some of the controllers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::Mount;

/// The free memory and the free process numbers without which a sandbox does not start: about what an idle browser
/// needs. Threads count as processes.
const START_BYTES: u64 = 180 << 20;
const START_PIDS: u64 = 150;
/// Version 1 has no word for "no limit": it reports a number close to 2⁶³.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// The files of a resource in one version of control groups.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// The name in `memory.stat` of the bytes that the kernel can take back: files that nobody has used lately.
    reclaimable: Option<&'static str>,
}

const MEMORY_V2: Files = Files { limit: "memory.max", used: "memory.current", reclaimable: Some("inactive_file") };
const MEMORY_V1: Files =
    Files { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", reclaimable: Some("total_inactive_file") };
const PIDS: Files = Files { limit: "pids.max", used: "pids.current", reclaimable: None };

/// A group that limits a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    limit: u64,
    used: u64,
}

impl Bound {
    fn read(group: &Path, files: &Files) -> Option<Self> {
        let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let limit = number(files.limit).filter(|limit| *limit < UNLIMITED_BYTES)?;
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let reclaimable = files.reclaimable.and_then(|name| {
            stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok())
        });
        let used = number(files.used).unwrap_or(0).saturating_sub(reclaimable.unwrap_or(0));
        Some(Self { limit, used })
    }

    fn free(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// The control groups that contain this process, with the limits that they have now.
#[derive(Clone, Debug, Default)]
pub struct OwnGroups {
    v2: Vec<PathBuf>,
    v1_memory: Vec<PathBuf>,
    v1_pids: Vec<PathBuf>,
}

/// A resource of which the control groups have too little left for another sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// Memory, in bytes.
    #[error(
        "{} of {} MiB of memory are left in the control group of the service, and a start needs {} MiB",
        free >> 20, limit >> 20, needed >> 20
    )]
    Memory {
        /// What is left.
        free: u64,
        /// The limit.
        limit: u64,
        /// What a start needs.
        needed: u64,
    },
    /// Processes and threads.
    #[error("{free} of {limit} processes are left in the control group of the service, and a start needs {needed}")]
    Pids {
        /// What is left.
        free: u64,
        /// The limit.
        limit: u64,
        /// What a start needs.
        needed: u64,
    },
}

impl OwnGroups {
    /// Finds the groups of this process.
    #[must_use]
    pub fn find() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Self::of(&read("mountinfo"), &read("cgroup"))
    }

    /// Finds the groups in the texts of `/proc/PID/mountinfo` and `/proc/PID/cgroup`.
    fn of(mounts: &str, groups: &str) -> Self {
        let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
        let has = |list: &str, word: &str| list.split(',').any(|one| one == word);
        let v1 = |controller: &str| {
            let path = groups.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                has(controllers, controller).then_some(path)
            });
            let mount = mounts.iter().find(|mount| mount.kind == "cgroup" && has(&mount.options, controller));
            mount.zip(path).map(|(mount, path)| lineage(mount, path)).unwrap_or_default()
        };
        let v2 = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let mount = mounts.iter().find(|mount| mount.kind == "cgroup2");
        Self {
            v2: mount.zip(v2).map(|(mount, path)| lineage(mount, path)).unwrap_or_default(),
            v1_memory: v1("memory"),
            v1_pids: v1("pids"),
        }
    }

    /// Returns the memory that the groups allow, in bytes; `None` without a limit.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory().map(|bound| bound.limit).min()
    }

    /// Returns the number of processes and threads that the groups allow; `None` without a limit.
    #[must_use]
    pub fn pids(&self) -> Option<u64> {
        self.processes().map(|bound| bound.limit).min()
    }

    /// Returns the number of idle sessions for which the groups have room, empty as they were at their beginning; `None`
    /// without a limit.
    #[must_use]
    pub fn sessions(&self) -> Option<u64> {
        let memory = self.memory_bytes().map(|bytes| bytes / START_BYTES);
        let pids = self.pids().map(|pids| pids / START_PIDS);
        memory.into_iter().chain(pids).min()
    }

    /// Checks that a sandbox with these limits fits now.
    ///
    /// # Errors
    /// Returns what is missing.
    pub fn check_room(&self, memory_bytes: u64, processes: u32) -> Result<(), Shortage> {
        let needed = START_BYTES.min(memory_bytes);
        if let Some(bound) = self.memory().min_by_key(|bound| bound.free()).filter(|bound| bound.free() < needed) {
            return Err(Shortage::Memory { free: bound.free(), limit: bound.limit, needed });
        }
        let needed = START_PIDS.min(processes.into());
        let least = self.processes().min_by_key(|bound| bound.free());
        match least.filter(|bound| bound.free() < needed) {
            Some(bound) => Err(Shortage::Pids { free: bound.free(), limit: bound.limit, needed }),
            None => Ok(()),
        }
    }

    /// Returns the nearest group of version 1 that limits the memory: only groups below it are within its limit.
    pub(crate) fn v1_memory_limit(&self) -> Option<&Path> {
        nearest(&self.v1_memory, &MEMORY_V1)
    }

    /// Returns the nearest group of version 1 that limits the processes.
    pub(crate) fn v1_pids_limit(&self) -> Option<&Path> {
        nearest(&self.v1_pids, &PIDS)
    }

    fn memory(&self) -> impl Iterator<Item = Bound> {
        let v2 = self.v2.iter().filter_map(|group| Bound::read(group, &MEMORY_V2));
        v2.chain(self.v1_memory.iter().filter_map(|group| Bound::read(group, &MEMORY_V1)))
    }

    fn processes(&self) -> impl Iterator<Item = Bound> {
        self.v2.iter().chain(&self.v1_pids).filter_map(|group| Bound::read(group, &PIDS))
    }
}

/// Returns the first of these groups that limits a resource.
fn nearest<'g>(groups: &'g [PathBuf], files: &Files) -> Option<&'g Path> {
    groups.iter().find(|group| Bound::read(group, files).is_some()).map(PathBuf::as_path)
}

/// Returns the group at this path of its hierarchy and the groups above it, as far as they are below the mount. A
/// container may see the path of the whole machine, with only its own group mounted.
fn lineage(mount: &Mount, path: &str) -> Vec<PathBuf> {
    let below = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let group = mount.at.join(below);
    let group = if group.is_dir() { group } else { mount.at.clone() };
    group.ancestors().take_while(|group| group.starts_with(&mount.at)).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files below a folder.
    fn written(root: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
            fs::write(path, text).expect("the file is written");
        }
    }

    fn groups_v2(root: &Path, own: &str) -> OwnGroups {
        OwnGroups::of(&format!("30 20 0:26 / {} rw - cgroup2 cgroup2 rw", root.display()), &format!("0::{own}\n"))
    }

    #[test]
    fn the_smallest_limit_of_the_own_group_and_those_above_counts() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let files = [
            ("system.slice/memory.max", "2147483648\n"),
            ("system.slice/memory.current", "1073741824\n"),
            ("system.slice/memory.stat", "anon 5\ninactive_file 536870912\n"),
            ("system.slice/pids.max", "400\n"),
            ("system.slice/pids.current", "100\n"),
            ("system.slice/casement.service/memory.max", "max\n"),
            ("system.slice/casement.service/pids.max", "max\n"),
        ];
        written(root.path(), &files);
        let groups = groups_v2(root.path(), "/system.slice/casement.service");
        assert_eq!((groups.memory_bytes(), groups.pids(), groups.sessions()), (Some(2 << 30), Some(400), Some(2)));
        assert_eq!(groups.check_room(2 << 30, 1000), Ok(()));
        written(root.path(), &[("system.slice/pids.current", "300\n")]);
        let few = Shortage::Pids { free: 100, limit: 400, needed: START_PIDS };
        assert_eq!(groups.check_room(2 << 30, 1000), Err(few));
        assert_eq!(groups.check_room(2 << 30, 100), Ok(()), "a sandbox of fewer processes fits");
        written(root.path(), &[("system.slice/memory.current", "2600000000\n")]);
        let free = (2 << 30) - (2_600_000_000 - 536_870_912);
        assert_eq!(
            groups.check_room(2 << 30, 1000),
            Err(Shortage::Memory { free, limit: 2 << 30, needed: START_BYTES })
        );
        assert_eq!(groups.check_room(free, 1000), Err(few), "a smaller sandbox fits into the memory");
        Ok(())
    }

    #[test]
    fn a_machine_and_a_container_without_limits_have_none() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let v1 = "31 20 0:27 / /nowhere rw - cgroup cgroup rw,memory";
        assert_eq!(OwnGroups::of(v1, "4:memory:/\n").memory_bytes(), None);
        written(root.path(), &[("memory.limit_in_bytes", "9223372036854771712\n")]);
        let v1 = format!("31 20 0:27 / {} rw - cgroup cgroup rw,memory", root.path().display());
        let groups = OwnGroups::of(&v1, "4:memory:/\n");
        assert_eq!((groups.memory_bytes(), groups.sessions()), (None, None));
        assert_eq!(groups.check_room(u64::MAX, u32::MAX), Ok(()));
        Ok(())
    }

    #[test]
    fn the_nearest_group_of_version_1_with_a_limit_is_that_of_the_sandboxes() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let files = [
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("slice/memory.limit_in_bytes", "2147483648\n"),
            ("slice/service/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        written(root.path(), &files);
        let v1 = format!("31 20 0:27 / {} rw - cgroup cgroup rw,memory", root.path().display());
        let groups = OwnGroups::of(&v1, "4:memory:/slice/service\n");
        assert_eq!(groups.v1_memory_limit(), Some(&*root.path().join("slice")));
        assert_eq!(groups.v1_pids_limit(), None);
        assert_eq!(OwnGroups::of(&v1, "4:memory:/\n").v1_memory_limit(), None);
        Ok(())
    }

    #[test]
    fn a_container_of_version_1_sees_its_group_as_the_root_of_the_mount() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let files = [("memory/memory.limit_in_bytes", "1073741824\n"), ("pids/pids.max", "3000\n")];
        written(root.path(), &files);
        let mount = |controller: &str| {
            format!(
                "31 20 0:27 /docker/abc {}/{controller} rw - cgroup cgroup rw,{controller}\n",
                root.path().display()
            )
        };
        let groups = OwnGroups::of(
            &(mount("memory") + &mount("pids")),
            "5:pids:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n",
        );
        assert_eq!((groups.memory_bytes(), groups.pids(), groups.sessions()), (Some(1 << 30), Some(3000), Some(5)));
        Ok(())
    }

    #[test]
    fn a_group_outside_of_the_mount_is_taken_for_its_root() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        written(root.path(), &[("memory.max", "1048576\n")]);
        assert_eq!(groups_v2(root.path(), "/../../elsewhere").memory_bytes(), Some(1 << 20));
        Ok(())
    }
}
