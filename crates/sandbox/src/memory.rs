//! The memory of everything in a sandbox, as its first program sees it, for hosts where no cgroup limits it.

use std::fs;

use rustix::fs::statfs;

use crate::process::{all_pids, pss_bytes};

/// Where a sandbox keeps its files: in memory.
const IN_MEMORY: [&str; 3] = ["/tmp", "/dev/shm", "/home/casement"];
/// `TMPFS_MAGIC`.
const TMPFS: u64 = 0x0102_1994;

/// To be asked in a sandbox: whether all of its processes and its files together hold more than `limit` bytes, shared pages counted once.
///
/// What a process has mapped of such a file counts twice. That is little: a browser at rest keeps nothing in `/tmp` and
/// `/dev/shm` and two MiB in its home, and whoever maps more comes to its limit earlier. To count it once, one would have to take
/// the larger of what is mapped and what is in files, and memory without a name in any file system could hide behind files.
///
/// Resident sizes are cheap to read and never smaller than the proportional ones; the exact figure, which costs the kernel a walk
/// through every mapping, is asked for only when the cheap one is over the limit.
#[must_use]
pub fn over_limit(limit: u64) -> bool {
    let (processes, files) = (all_pids().unwrap_or_default(), IN_MEMORY.map(files_of).into_iter().sum::<u64>());
    let resident: u64 = processes.iter().map(|pid| resident_bytes(*pid)).sum();
    resident + files > limit && files + processes.iter().map(|pid| pss_bytes(*pid)).sum::<u64>() > limit
}

/// What the files of a file system in memory take, in bytes; nothing if it is another's or on a disk.
fn files_of(path: &str) -> u64 {
    let Ok(about) = statfs(path) else { return 0 };
    let field = |value| u64::try_from(value).unwrap_or(0);
    if field(about.f_type) == TMPFS { (about.f_blocks - about.f_bfree) * field(about.f_bsize) } else { 0 }
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
        assert!(!over_limit(u64::MAX));
    }
}
