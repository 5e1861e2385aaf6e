//! Finds killed processes in the kernel's log. Without permission to read the log there is no result and no error.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};

/// The longest record of the log, in bytes.
const MAX_RECORD: usize = 8 << 10;
/// The maximum number of records that are read; no log has more.
const MAX_RECORDS: usize = 1 << 20;

/// A process that the kernel killed because the memory of its sandbox was full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// The pid of the process on the host.
    pub pid: u32,
    /// The name of the process, which the process can change.
    pub process: String,
    /// The resident memory of the process, in KiB.
    pub resident_kib: u64,
}

/// Returns the last killed process of the group of this name, if the log is readable and contains it.
pub(crate) fn oom_kill(group: &str) -> Option<OomKill> {
    found(group, records()?)
}

/// Returns the records of the log, oldest first.
fn records() -> Option<impl Iterator<Item = String>> {
    let log = open("/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut record = [0; MAX_RECORD];
    let next = move || loop {
        match read(&log, &mut record) {
            Ok(length) => return Some(String::from_utf8_lossy(&record[..length]).into_owned()),
            // Unread records were overwritten by newer ones.
            Err(Errno::PIPE | Errno::INTR) => {}
            Err(_) => return None,
        }
    };
    Some(std::iter::from_fn(next).take(MAX_RECORDS))
}

/// Finds the last kill in the group. The log names the process first, and its memory in a later record.
fn found(group: &str, records: impl Iterator<Item = String>) -> Option<OomKill> {
    let ours = format!("/{group}");
    let (mut named, mut killed) = (None, None);
    for record in records {
        let text = record.split_once(';').map_or("", |(_, text)| text).lines().next().unwrap_or_default();
        if let Some((pid, name)) = victim(text, &ours) {
            named = Some((pid, name.to_owned()));
        } else if let Some((pid, name)) = &named
            && let Some(resident_kib) = held(text, *pid)
        {
            killed = Some(OomKill { pid: *pid, process: name.clone(), resident_kib });
            named = None;
        }
    }
    killed
}

/// Parses `oom-kill:constraint=…,oom_memcg=/casement/GROUP,task_memcg=/casement/GROUP,task=NAME,pid=1,uid=1`. A name
/// may contain commas.
fn victim<'a>(text: &'a str, group: &str) -> Option<(u32, &'a str)> {
    let (_, rest) = text.strip_prefix("oom-kill:")?.split_once(",oom_memcg=")?;
    let (of, rest) = rest.split_once(",task_memcg=")?;
    let (_, rest) = rest.split_once(",task=").filter(|_| of.ends_with(group))?;
    let (rest, _) = rest.rsplit_once(",uid=")?;
    let (name, pid) = rest.rsplit_once(",pid=")?;
    Some((pid.parse().ok()?, name))
}

/// Parses `Memory cgroup out of memory: Killed process 1 (NAME) total-vm:1kB, anon-rss:1kB, file-rss:1kB,
/// shmem-rss:1kB, UID:…`.
fn held(text: &str, pid: u32) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("Killed process {pid} ("))?;
    let (_, sizes) = rest.rsplit_once(") total-vm:")?;
    let of = |name: &str| sizes.split_once(name)?.1.split_once("kB")?.0.parse::<u64>().ok();
    Some(of("anon-rss:")? + of("file-rss:").unwrap_or(0) + of("shmem-rss:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> impl Iterator<Item = String> {
        lines.iter().map(|line| format!("4,812,46687233941,-;{line}\n SUBSYSTEM=x\n")).collect::<Vec<_>>().into_iter()
    }

    fn kill_record(group: &str, name: &str, pid: u32) -> String {
        format!(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/casement/{group},\
             task_memcg=/casement/{group},task={name},pid={pid},uid=1900000002"
        )
    }

    const KILLED: &str = "Memory cgroup out of memory: Killed process 1585 (a) total-vm:9,pid=7) total-vm:1518541852kB, \
        anon-rss:2607544kB, file-rss:95516kB, shmem-rss:160kB, UID:1900000002 pgtables:7144kB oom_score_adj:300";

    #[test]
    fn the_last_one_that_was_killed_in_the_group_is_found_whatever_its_name() {
        let name = "a) total-vm:9,pid=7";
        let ours = kill_record("abc-1", name, 1585);
        let other = kill_record("abc-2", "other", 1586);
        let lines =
            ["booted", &kill_record("abc-1", "earlier", 12), &ours, "something else; with text", KILLED, &other];
        let found = found("abc-1", log(&lines));
        assert_eq!(found, Some(OomKill { pid: 1585, process: name.to_owned(), resident_kib: 2_703_220 }));
    }

    #[test]
    fn what_the_log_does_not_say_is_not_made_up() {
        let ours = kill_record("abc-1", "chromium", 1585);
        for lines in [
            vec![],
            vec![ours.as_str()],
            vec![KILLED],
            vec![KILLED, &ours],
            vec!["oom-kill:", ",task=x,pid=1", "Killed process ("],
        ] {
            assert_eq!(found("abc-1", log(&lines)), None, "{lines:?}");
        }
        assert_eq!(found("bc-1", log(&[&ours, KILLED])), None);
    }
}
