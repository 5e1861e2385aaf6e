//! Finds the processes that use the memory of the sandbox.

use std::fs;

/// A running process.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// The resident memory of the process, in KiB.
    pub(crate) resident_kib: u64,
}

/// Returns the `max` processes with the most resident memory, the largest first.
pub(crate) fn largest(max: usize) -> Vec<Program> {
    let about = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let name = text.lines().find_map(|line| line.strip_prefix("Name:"))?.trim().to_owned();
        Some(Program { pid, name, resident_kib: sum_kib(&text, &["VmRSS:"])? / 1024 })
    };
    let mut all: Vec<Program> = processes().into_iter().filter_map(about).collect();
    all.sort_unstable_by_key(|one| std::cmp::Reverse(one.resident_kib));
    all.truncate(max);
    all
}

fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the sum of the lines with these names in a file of `/proc`, in bytes. The file gives the values in KiB.
/// `None` if there is no such line.
pub(crate) fn sum_kib(text: &str, keys: &[&str]) -> Option<u64> {
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
}
