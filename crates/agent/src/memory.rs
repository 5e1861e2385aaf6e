//! The memory of everything in the sandbox, for hosts where no cgroup limits it.

use std::fs;

/// Whether all processes of the sandbox together hold more than `limit` bytes, shared pages counted once.
///
/// Resident sizes are cheap to read and never smaller than the proportional ones; the exact figure, which costs the kernel a walk
/// through every mapping, is asked for only when the cheap one is over the limit.
pub(crate) fn over_limit(limit: u64) -> bool {
    let processes = processes();
    let resident: u64 = processes.iter().filter_map(|pid| status_bytes(*pid, &["VmRSS:"])).sum();
    resident > limit && processes.iter().map(|pid| proportional(*pid)).sum::<u64>() > limit
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
