//! The memory of everything in the sandbox, for hosts where no cgroup limits it.

use std::fs;

use rustix::fs::statfs;

/// Where a sandbox keeps its files: in memory.
const IN_MEMORY: [&str; 3] = ["/tmp", "/dev/shm", "/home/casement"];
/// `TMPFS_MAGIC`.
const TMPFS: u64 = 0x0102_1994;

/// Whether all processes of the sandbox and its files together hold more than `limit` bytes, shared pages counted once.
///
/// What a process has mapped of such a file counts twice. That is little: a browser at rest keeps nothing in `/tmp` and
/// `/dev/shm` and two MiB in its home, and whoever maps more comes to its limit earlier. To count it once, one would have to take
/// the larger of what is mapped and what is in files, and memory without a name in any file system could hide behind files.
///
/// Resident sizes are cheap to read and never smaller than the proportional ones; the exact figure, which costs the kernel a walk
/// through every mapping, is asked for only when the cheap one is over the limit.
pub(crate) fn over_limit(limit: u64) -> bool {
    let (processes, files) = (processes(), IN_MEMORY.map(files_of).into_iter().sum::<u64>());
    let resident: u64 = processes.iter().filter_map(|pid| status_bytes(*pid, &["VmRSS:"])).sum();
    resident + files > limit && files + processes.iter().map(|pid| proportional(*pid)).sum::<u64>() > limit
}

/// What the files of a file system in memory take, in bytes; nothing if it is another's or on a disk.
fn files_of(path: &str) -> u64 {
    let Ok(about) = statfs(path) else { return 0 };
    let field = |value| u64::try_from(value).unwrap_or(0);
    if field(about.f_type) == TMPFS { (about.f_blocks - about.f_bfree) * field(about.f_bsize) } else { 0 }
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// What it holds of the memory, in KiB.
    pub(crate) resident_kib: u64,
}

/// Those that hold the most memory, the largest first.
pub(crate) fn largest(most: usize) -> Vec<Program> {
    let about = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let name = text.lines().find_map(|line| line.strip_prefix("Name:"))?.trim().to_owned();
        Some(Program { pid, name, resident_kib: sum_kib(&text, &["VmRSS:"])? / 1024 })
    };
    let mut all: Vec<Program> = processes().into_iter().filter_map(about).collect();
    all.sort_unstable_by_key(|one| std::cmp::Reverse(one.resident_kib));
    all.truncate(most);
    all
}

fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Proportional size of a process in bytes. Renderers forbid reading theirs; their own pages stand for it.
fn proportional(pid: u32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .ok()
        .and_then(|text| sum_kib(&text, &["Pss:"]))
        .or_else(|| status_bytes(pid, &["RssAnon:"]))
        .unwrap_or(0)
}

fn status_bytes(pid: u32, keys: &[&str]) -> Option<u64> {
    sum_kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, keys)
}

fn sum_kib(text: &str, keys: &[&str]) -> Option<u64> {
    let mut found = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        keys.contains(&words.next()?).then(|| words.next()?.parse::<u64>().ok())?
    });
    let first = found.next()?;
    Some((first + found.sum::<u64>()) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_bytes() {
        assert_eq!(sum_kib("VmPeak:  9 kB\nVmRSS:\t   12 kB\n", &["VmRSS:"]), Some(12 * 1024));
        assert_eq!(sum_kib("", &["VmRSS:"]), None);
    }

    #[test]
    fn a_limit_below_our_own_size_is_exceeded() {
        assert!(over_limit(4096));
        assert!(!over_limit(u64::MAX));
    }
}
