//! A program and all it has started, as `/proc` shows them.
//!
//! What a program starts can leave its group, its session and its parent. Three signs together find it: the session, the line of
//! parents, and a word in the environment that every child gets unless its parent takes it away. What has lost all three is left to
//! the end of the sandbox.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::memory::sum_kib;

/// Names, in the environment of a program, which one it is.
pub(crate) const MARK: &str = "CASEMENT_PROCESS";
/// How often those that were started while others were killed are looked for.
const ROUNDS: usize = 30;

/// What is known of one process.
struct Seen {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    ticks: u64,
    pages: u64,
}

/// What a program and the rest of its session take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    /// Processor time, in ticks.
    pub(crate) ticks: u64,
    /// Resident memory, in bytes.
    pub(crate) bytes: u64,
}

/// Sends `signal` to the group of `leader`. Its process must not have been waited for, or its number might be another's by now.
pub(crate) fn signal(leader: Pid, signal: Signal) -> bool {
    // In its first moments it has no group of its own yet.
    kill_process_group(leader, signal).is_ok() || kill_process(leader, signal).is_ok()
}

/// Kills `leader` and all it has started. As [`signal`], before it was waited for.
pub(crate) fn end(leader: Pid, name: &str) {
    for _ in 0..ROUNDS {
        signal(leader, Signal::KILL);
        let rest = members(leader, name);
        if rest.is_empty() {
            return;
        }
        for pid in rest {
            // Gone by itself is as good.
            if let Some(pid) = Pid::from_raw(pid) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
    tracing::warn!("a program starts others faster than they can be killed");
}

/// Whether anything of the group of `leader` still runs.
pub(crate) fn group_lives(leader: Pid) -> bool {
    seen().any(|seen| seen.group == leader.as_raw_nonzero().get())
}

/// What the session of `leader` takes.
pub(crate) fn load(leader: Pid) -> Load {
    let leader = leader.as_raw_nonzero().get();
    // In its first moments it has no session of its own yet.
    seen().filter(|seen| seen.pid == leader || seen.session == leader).fold(Load::default(), |load, seen| Load {
        ticks: load.ticks + seen.ticks,
        bytes: load.bytes + seen.resident(),
    })
}

impl Seen {
    /// Its resident memory in bytes. `stat` says it from counters that leave out up to some megabytes on a machine of many
    /// processors, all of a small program, so it is asked only where the exact figure may not be read.
    fn resident(&self) -> u64 {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).unwrap_or_default();
        sum_kib(&rollup, &["Rss:"]).unwrap_or_else(|| self.pages * rustix::param::page_size() as u64)
    }
}

/// The living processes that `leader` has started, itself included.
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
        // Bounded: the picture was not taken at one moment.
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

/// Whether a signal or a debugger has stopped the process.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    matches!(state, Some(b'T' | b't'))
}

/// All living processes.
fn seen() -> impl Iterator<Item = Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|pid| parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Reads `/proc/<pid>/stat`. The name in it is its owner's to choose: everything counts from the last parenthesis on.
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
        // Its own time and that of its children that were waited for.
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
