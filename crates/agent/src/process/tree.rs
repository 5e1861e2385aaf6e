//! A program and all processes that it has started, as `/proc` reports them.
//!
//! A process can leave its process group, its session and its parent. It is found by three properties: the session, the
//! chain of parents, and an environment variable that every child inherits unless its parent removes it. A process that
//! has lost all three ends with the sandbox.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::memory::sum_kib;

/// The environment variable that contains the name of the program.
pub(crate) const MARK: &str = "CASEMENT_PROCESS";
/// The maximum number of searches for processes that were started while others were killed.
const ROUNDS: usize = 30;

/// The state of one process.
struct Seen {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    ticks: u64,
    pages: u64,
}

/// The resources that the session of a program uses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    /// The processor time, in clock ticks.
    pub(crate) ticks: u64,
    /// The resident memory, in bytes.
    pub(crate) bytes: u64,
}

/// Sends `signal` to the process group of `leader`, and returns false if that failed. The process must not have been
/// waited for, because its id might belong to another process by now.
pub(crate) fn signal(leader: Pid, signal: Signal) -> bool {
    // A new process has no group of its own yet.
    kill_process_group(leader, signal).is_ok() || kill_process(leader, signal).is_ok()
}

/// Kills `leader` and all processes that it has started. As for [`signal`], the process must not have been waited for.
pub(crate) fn end(leader: Pid, name: &str) {
    for _ in 0..ROUNDS {
        signal(leader, Signal::KILL);
        let rest = members(leader, name);
        if rest.is_empty() {
            return;
        }
        for pid in rest {
            // The process may have ended already.
            if let Some(pid) = Pid::from_raw(pid) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
    tracing::warn!("a program starts others faster than they can be killed");
}

/// Returns true if a process of the group of `leader` still runs.
pub(crate) fn group_lives(leader: Pid) -> bool {
    seen().any(|seen| seen.group == leader.as_raw_nonzero().get())
}

/// Returns the resources that the session of `leader` uses.
pub(crate) fn load(leader: Pid) -> Load {
    let leader = leader.as_raw_nonzero().get();
    // A new process has no session of its own yet.
    seen().filter(|seen| seen.pid == leader || seen.session == leader).fold(Load::default(), |load, seen| Load {
        ticks: load.ticks + seen.ticks,
        bytes: load.bytes + seen.resident(),
    })
}

impl Seen {
    /// Returns the resident memory in bytes. The value in `stat` can be some megabytes too low on a machine with many
    /// processors, which is all of a small program, so it is used only if the exact value cannot be read.
    fn resident(&self) -> u64 {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).unwrap_or_default();
        sum_kib(&rollup, &["Rss:"]).unwrap_or_else(|| self.pages * rustix::param::page_size() as u64)
    }
}

/// Returns the ids of the running processes that `leader` has started, and of `leader` itself.
fn members(leader: Pid, name: &str) -> Vec<i32> {
    let leader = leader.as_raw_nonzero().get();
    let mark = format!("{MARK}={name}");
    let all: HashMap<i32, Seen> = seen().map(|seen| (seen.pid, seen)).collect();
    let is_marked = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    };
    let descends = |seen: &Seen| {
        let mut at = seen;
        // Bounded, because the processes were not read at one moment.
        for _ in 0..all.len() {
            if at.pid == leader || at.parent == leader {
                return true;
            }
            match all.get(&at.parent) {
                Some(parent) => at = parent,
                None => return false,
            }
        }
        false
    };
    let belongs = |seen: &&Seen| seen.session == leader || descends(seen) || is_marked(seen.pid);
    all.values().filter(belongs).map(|seen| seen.pid).collect()
}

/// Returns true if a signal or a debugger has stopped the process.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    matches!(state, Some(b'T' | b't'))
}

/// Returns all processes that have not ended.
fn seen() -> impl Iterator<Item = Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|pid| parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Parses `/proc/<pid>/stat`; `None` for a process that has ended. A process chooses its own name, so the fields are
/// counted from the last parenthesis on.
fn parse(pid: i32, stat: &[u8]) -> Option<Seen> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let words = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace().collect::<Vec<_>>();
    let number = |index: usize| words.get(index)?.parse::<i64>().ok();
    if matches!(words.first(), None | Some(&"Z" | &"X")) {
        return None;
    }
    let count = |index: usize| number(index).and_then(|n| u64::try_from(n).ok()).unwrap_or_default();
    Some(Seen {
        pid,
        parent: i32::try_from(number(1)?).ok()?,
        group: i32::try_from(number(2)?).ok()?,
        session: i32::try_from(number(3)?).ok()?,
        // The time of the process and of its children that were waited for.
        ticks: count(11) + count(12) + count(13) + count(14),
        pages: count(21),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_hides_nothing() {
        let rest = "S 7 12 13 0 -1 4194560 1 2 3 4 50 60 70 80 20 0 1 0 999 1234 42 18446744073709551615";
        let seen = parse(12, format!("12 (a) Z 1 (b)) {rest}").as_bytes()).expect("a process");
        assert_eq!((seen.parent, seen.group, seen.session, seen.ticks, seen.pages), (7, 12, 13, 260, 42));
        assert!(parse(12, b"12 (a) Z 7 12 13 0").is_none());
        assert!(parse(12, b"").is_none());
    }

    #[test]
    fn a_new_program_counts_before_it_has_a_session_of_its_own() {
        for _ in 0..100 {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
            let leader = Pid::from_raw(i32::try_from(child.id()).expect("a number")).expect("not zero");
            let taken = load(leader);
            child.kill().and_then(|()| child.wait()).expect("it ends");
            assert!(taken.bytes > 0);
        }
    }

    #[test]
    fn this_very_process_is_seen() {
        assert!(seen().any(|seen| seen.pid == std::process::id() as i32));
    }
}
