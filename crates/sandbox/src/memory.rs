//! Measures the memory of everything in a sandbox, for hosts without a control group that limits it: from the first
//! program inside, and from the host.
//!
//! Included are the processes, the files of every memory file system that one of them can reach, unnamed files that
//! one of them has open (memfd), and System V shared memory segments, attached or not. A memory file system without a
//! bound or of unknown size, such as a ramfs, counts as over any limit. Not included are descriptors that are in
//! transit in a socket and open nowhere, and the kernel's own memory.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{StatFs, statfs};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{all_pids, pss_bytes};

/// `TMPFS_MAGIC` and `RAMFS_MAGIC`.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
/// The file with the System V segments of the reader's own namespace.
const SEGMENTS: &str = "/proc/sysvipc/shm";
const NSENTER: &str = "/usr/bin/nsenter";
/// The beginnings of the link targets of descriptors that are not files of a file system.
const ELSEWHERE: [&str; 3] = ["socket:", "pipe:", "anon_inode:"];

/// Returns true if all processes and files of the caller's sandbox together use more than `limit` bytes. Shared pages
/// count once.
///
/// Mapped files in memory count twice. The error is small: an idle browser has nothing in `/tmp` and `/dev/shm` and
/// two MiB in its home, and a process that maps more reaches its limit earlier. To count them once, the larger of
/// mappings and files would have to be used, and then files could hide unnamed memory.
///
/// Resident sizes are cheap to read and never smaller than proportional sizes. The exact size, for which the kernel
/// reads every mapping, is read only if the resident size exceeds the limit.
#[must_use]
pub fn over_limit(limit: u64) -> bool {
    // A mount of a directory below the root of its file system belongs to the host.
    is_over(limit, &all_pids().unwrap_or_default(), &devices(|root| root != "/"), false)
}

/// Like [`over_limit`], for the given processes of one sandbox, measured from the host. Blocks.
pub(crate) fn is_over_outside(limit: u64, processes: &[i32]) -> bool {
    is_over(limit, processes, &devices(|_| true), true)
}

/// Returns the devices of this process's mounts. Includes a mount if `test` returns true for its root in the file
/// system.
fn devices(test: impl Fn(&str) -> bool) -> HashSet<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(device).filter(|(_, root)| test(root)).map(|(device, _)| device).collect()
}

/// Returns the device of a line of `mountinfo`, and the mounted directory in its file system.
fn device(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split(' ').skip(2);
    let (major, minor) = words.next()?.split_once(':')?;
    Some((rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?), words.next()?))
}

/// Returns the device of the kernel's internal file system, which contains unnamed files.
fn nameless_device() -> Option<u64> {
    static DEVICE: OnceLock<Option<u64>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let file = rustix::fs::memfd_create("device", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
        fs::File::from(file).metadata().ok().map(|about| about.dev())
    })
}

fn is_over(limit: u64, processes: &[i32], of_the_host: &HashSet<u64>, is_outside: bool) -> bool {
    let Some(files) = Files::of(processes, of_the_host).bytes(is_outside) else { return true };
    let resident: u64 = processes.iter().map(|pid| resident_bytes(*pid)).sum();
    resident + files > limit && files + processes.iter().map(|pid| pss_bytes(*pid)).sum::<u64>() > limit
}

/// The memory of a sandbox in addition to that of its processes. Each object is included once.
struct Files<'a> {
    /// Devices of file systems that do not belong to the sandbox.
    of_the_host: &'a HashSet<u64>,
    /// The bytes of file systems, by device.
    systems: BTreeMap<u64, u64>,
    /// The bytes of unnamed files, by device and inode.
    nameless: BTreeMap<(u64, u64), u64>,
    /// The bytes of System V segments, by namespace.
    segments: BTreeMap<String, u64>,
    /// The devices of mounts that are covered by another mount, or that cannot be read.
    hidden: HashSet<u64>,
    /// True if a file system has no bound and reports no size.
    is_unbounded: bool,
}

impl<'a> Files<'a> {
    fn of(processes: &[i32], of_the_host: &'a HashSet<u64>) -> Self {
        let (systems, nameless, segments) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut all = Self { of_the_host, systems, nameless, segments, hidden: HashSet::new(), is_unbounded: false };
        let mut mounts = HashSet::new();
        for pid in processes {
            let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_default();
            if mounts.insert((link("ns/mnt"), link("root"))) {
                all.add_mounts(*pid);
            }
            all.add_segments(&link("ns/ipc").to_string_lossy(), &format!("/proc/{pid}/ns/ipc"), *pid);
            all.add_descriptors(*pid);
        }
        all
    }

    /// Returns the sum in bytes; `None` if it is unbounded. With `sees_all`, hidden file systems count as unbounded.
    fn bytes(&self, sees_all: bool) -> Option<u64> {
        let sums = [self.systems.values().sum::<u64>(), self.nameless.values().sum(), self.segments.values().sum()];
        let is_hidden = sees_all && self.hidden.iter().any(|device| !self.systems.contains_key(device));
        (!self.is_unbounded && !is_hidden).then(|| sums.into_iter().sum())
    }

    fn add_mounts(&mut self, pid: i32) {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        for line in mounts.lines() {
            let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
            let Some((device, _)) = device(line).filter(|_| matches!(kind, Some("tmpfs" | "ramfs"))) else { continue };
            let at = line.split(' ').nth(4).map(unescaped).unwrap_or_default();
            let path = format!("/proc/{pid}/root{at}");
            if fs::metadata(&path).is_ok_and(|about| about.dev() == device) {
                self.add_system(&path);
            } else if !self.of_the_host.contains(&device) {
                self.hidden.insert(device);
            }
        }
    }

    /// Adds the file system of a path.
    fn add_system(&mut self, path: &str) {
        let (Ok(about), Ok(file)) = (statfs(path), fs::metadata(path)) else { return };
        match magic(&about) {
            _ if self.of_the_host.contains(&file.dev()) => {}
            RAMFS => self.is_unbounded = true,
            TMPFS if Some(file.dev()) == nameless_device() => {
                self.nameless.insert((file.dev(), file.ino()), file.blocks() * 512);
            }
            TMPFS if about.f_blocks > 0 => {
                let bytes = (about.f_blocks - about.f_bfree) * u64::try_from(about.f_bsize).unwrap_or(0);
                self.systems.insert(file.dev(), bytes);
            }
            // A tmpfs without a bound does not report its size.
            TMPFS => self.is_unbounded = true,
            _ => {}
        }
    }

    fn add_descriptors(&mut self, pid: i32) {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(target) = fs::read_link(&path) else { continue };
            let (target, path) = (target.to_string_lossy(), path.to_string_lossy());
            if target.starts_with("ipc:") {
                self.add_segments(&target, &path, pid);
            } else if !ELSEWHERE.iter().any(|known| target.starts_with(known)) {
                self.add_system(&path);
            }
        }
    }

    /// Adds the segments of a namespace, which may contain no process.
    fn add_segments(&mut self, name: &str, path: &str, pid: i32) {
        if !name.is_empty() && !self.segments.contains_key(name) {
            let listed = segments(name, path, pid).unwrap_or_default();
            self.segments.insert(name.to_owned(), segment_bytes(&listed));
        }
    }
}

/// Returns the list of a namespace's segments in the kernel's format.
fn segments(name: &str, path: &str, pid: i32) -> Option<String> {
    let own = fs::read_link("/proc/thread-self/ns/ipc").ok()?;
    if own.to_string_lossy() == name {
        return fs::read_to_string(SEGMENTS).ok();
    }
    let namespace = fs::File::open(path).ok()?;
    // A separate thread, which enters the other namespace and ends there.
    let entered = std::thread::Builder::new().spawn(move || {
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(LinkNameSpaceType::InterProcessCommunication),
        )?;
        fs::read_to_string(SEGMENTS)
    });
    match entered.ok()?.join().ok()? {
        Ok(listed) => Some(listed),
        // An ordinary user must enter the user namespace as well, which a process with threads cannot.
        Err(_) => {
            let mut command = Command::new(NSENTER);
            command.args(["--user", "--preserve-credentials", &format!("--ipc={path}"), "--target", &pid.to_string()]);
            let output = command.args(["--", "cat", SEGMENTS]).stderr(std::process::Stdio::null()).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        }
    }
}

/// Returns the resident and swapped bytes of all segments.
fn segment_bytes(listed: &str) -> u64 {
    let mut lines = listed.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let Some(head) = lines.next() else { return 0 };
    let columns: Vec<usize> =
        ["rss", "swap"].iter().filter_map(|name| head.iter().position(|column| column == name)).collect();
    lines.flat_map(|line| columns.iter().filter_map(|at| line.get(*at)?.parse::<u64>().ok()).collect::<Vec<_>>()).sum()
}

/// Decodes a path of `mountinfo`, in which space, tab, line feed and backslash are octal numbers.
fn unescaped(path: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(path.to_owned(), |path, (escape, plain)| path.replace(escape, plain))
}

fn magic(about: &StatFs) -> u64 {
    about.f_type as u64 & 0xffff_ffff
}

fn resident_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_our_own_size_is_exceeded() {
        assert!(over_limit(4096));
        // Mounts of this machine do not belong to the sandbox.
        assert!(!is_over(u64::MAX, &all_pids().expect("processes"), &devices(|_| true), false));
    }

    #[test]
    fn an_unnamed_file_counts_once_even_if_it_is_not_mapped() {
        use std::io::Write as _;
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = fs::File::from(rustix::fs::memfd_create("hidden", flags).expect("a file"));
        let again = file.try_clone().expect("another descriptor");
        file.write_all(&vec![1; 8 << 20]).expect("it is written");
        let me = std::process::id() as i32;
        let about = file.metadata().expect("it is there");
        let none = HashSet::new();
        let files = Files::of(&[me, me], &none);
        assert_eq!(files.nameless.get(&(about.dev(), about.ino())), Some(&(8 << 20)));
        drop((file, again));
    }

    #[test]
    fn segments_count_by_what_they_hold_and_not_by_their_size() {
        let listed = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n\
             0          0   600             524288000   123   123      0  1000  1000  1000  1000          0          0 1700000000             104857600                  4096\n\
             0          1   600                  4096   123   123      1  1000  1000  1000  1000          0          0 1700000000                  4096                     0\n";
        assert_eq!(segment_bytes(listed), 104_857_600 + 4096 + 4096);
        assert_eq!(segment_bytes(""), 0);
    }
}
