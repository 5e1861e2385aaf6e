//! Processes of the host, identified so that a process with a reused pid is never taken for the earlier one. A process
//! that cannot be examined, for example because there are no free descriptors, is an error and never counts as ended.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use serde::{Deserialize, Serialize};

/// The initial buffer size in bytes, larger than most files of `/proc/PID`.
const COMMON: usize = 8 << 10;
const MAX_BYTES: u64 = 2 << 20;

/// The identity of a process. The pid alone does not identify it, because it is reused after the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// The start time in clock ticks since boot.
    pub(crate) start_time: u64,
}

impl Identity {
    /// Returns the identity of the process with this pid; `None` if there is no such process.
    pub(crate) fn of(pid: i32) -> io::Result<Option<Self>> {
        Ok(Stat::read(pid)?.map(|stat| Self { pid, start_time: stat.start_time }))
    }

    /// Returns a handle on this process; `None` if the process has ended, even if its pid was reused.
    pub(crate) fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            // The pid now belongs to a thread.
            Err(Errno::INVAL) => None,
            opened => there(opened.map_err(io::Error::from))?,
        };
        // Compared after the handle was opened: while it is open, the pid of its process is not reused.
        let same = Self::of(self.pid)? == Some(*self);
        Ok(handle.filter(|_| same))
    }
}

/// Returns true if the process has ended. A zombie counts as ended.
pub(crate) fn ended(handle: &OwnedFd) -> bool {
    wait_end(handle, Duration::ZERO)
}

/// Blocks until the process ends or `limit` is over. Returns true if the process ended.
pub(crate) fn wait_end(handle: &OwnedFd, limit: Duration) -> bool {
    let mut watched = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    matches!(poll(&mut watched, Some(&limit)), Ok(n) if n > 0)
}

/// Kills the process of the handle. A process that has ended is no error.
pub(crate) fn kill(handle: &OwnedFd) -> io::Result<()> {
    signal(handle, Signal::KILL)
}

/// Stops a child, and returns when it has stopped or ended.
pub(crate) fn stop(child: &OwnedFd) -> io::Result<()> {
    signal(child, Signal::STOP)?;
    // Does not reap the child if it has ended.
    waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    Ok(())
}

/// Continues a stopped process.
pub(crate) fn go_on(stopped: &OwnedFd) -> io::Result<()> {
    signal(stopped, Signal::CONT)
}

fn signal(handle: &OwnedFd, signal: Signal) -> io::Result<()> {
    there(pidfd_send_signal(handle, signal).map_err(io::Error::from)).map(drop)
}

/// Converts the error of a process that has ended to `None`.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => Ok(None),
        found => found.map(Some),
    }
}

/// The used fields of `/proc/PID/stat`.
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: i32,
    pub(crate) start_time: u64,
}

impl Stat {
    pub(crate) fn read(pid: i32) -> io::Result<Option<Self>> {
        let line = match read(pid, "stat") {
            // If processes of other users are hidden, this process belongs to another user.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            line => line?,
        };
        let Some(line) = line else { return Ok(None) };
        let unclear = || io::Error::other(format!("the system tells of process {pid} in other words than it used to"));
        Self::parse(&String::from_utf8_lossy(&line)).ok_or_else(unclear).map(Some)
    }

    fn parse(line: &str) -> Option<Self> {
        // The name in parentheses may contain spaces and parentheses, so fields are counted from the last
        // parenthesis.
        let mut fields = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, start_time })
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }
}

/// Returns the pids of all processes that this process can see.
pub(crate) fn all_pids() -> io::Result<Vec<i32>> {
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    fs::read_dir("/proc")?.filter_map(|entry| entry.map(pid).transpose()).collect()
}

/// Returns `root` and all living processes below it. Orphans of a pid namespace become children of its first process,
/// so the tree below the first process of a namespace is always complete.
pub(crate) fn tree(root: i32) -> io::Result<Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let mut living = HashSet::new();
    for pid in all_pids()? {
        if let Some(stat) = Stat::read(pid)? {
            children.entry(stat.parent).or_default().push(pid);
            if stat.is_alive() {
                living.insert(pid);
            }
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        if let Some(below) = children.get(pid) {
            found.extend_from_slice(below);
        }
        next += 1;
    }
    found.retain(|pid| living.contains(pid));
    Ok(found)
}

/// Returns the effective user of a process; `None` if the process does not exist. In a sandbox, a process has only one
/// user, because it cannot change its user.
pub(crate) fn user(pid: i32) -> io::Result<Option<u32>> {
    Ok(there(fs::metadata(format!("/proc/{pid}")))?.map(|about| about.uid()))
}

/// Returns true if argument 0 of the process is one of `programs` and `marker` is one of its other arguments.
pub(crate) fn has_marker(pid: i32, programs: &[&[u8]], marker: &[u8]) -> io::Result<bool> {
    let line = match read(pid, "cmdline") {
        // If processes of other users are hidden, processes that this server started are visible.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        line => line?.unwrap_or_default(),
    };
    let mut args = line.split(|byte| *byte == 0);
    Ok(args.next().is_some_and(|program| programs.contains(&program)) && args.any(|arg| arg == marker))
}

/// Reads a file of `/proc/PID` in as few calls as possible, because a scan of all processes reads thousands of them.
fn read(pid: i32, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(COMMON);
    let file = fs::File::open(format!("/proc/{pid}/{name}"));
    let read = there(file.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes)))?;
    Ok(read.map(|_| bytes))
}

/// Returns the identities of the living processes for which `test` returns true.
pub(crate) fn living(test: impl Fn(i32) -> io::Result<bool>) -> io::Result<Vec<Identity>> {
    let same = |pid: i32| {
        // Most processes fail the first test. The others are tested again between two identity checks, so that the
        // identity is that of the tested process.
        if !test(pid)? {
            return Ok(None);
        }
        let Some(before) = Identity::of(pid)? else { return Ok(None) };
        let is_it = |after: Stat| after.is_alive() && after.start_time == before.start_time;
        Ok((test(pid)? && Stat::read(pid)?.is_some_and(is_it)).then_some(before))
    };
    all_pids()?.into_iter().filter_map(|pid| same(pid).transpose()).collect()
}

/// Returns the proportional set size of a process in bytes. If the kernel refuses that (an undumpable process, read by
/// an ordinary user), returns its private memory, which is never more than the true size.
pub(crate) fn pss_bytes(pid: i32) -> u64 {
    let kib = |text: &str, name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
    let found = rollup.and_then(|text| kib(&text, "Pss:")).or_else(|| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        kib(&status, "RssAnon:")
    });
    found.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) S 7 (b)) S 17 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1";
        let stat = Stat::parse(line).expect("parses");
        assert_eq!((stat.state, stat.parent, stat.start_time), (b'S', 17, 987_654));
    }

    #[test]
    fn a_process_is_recognized_by_its_user_and_an_argument_of_any_command_line() {
        let filler = std::iter::repeat_n("x".repeat(1000), 20);
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo; read line", "sh"])
            .args(filler)
            .arg("marker")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a child");
        // A new process has no command line at first.
        child.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("a line");
        let (pid, programs): (_, [&[u8]; 1]) = (child.id() as i32, [b"sh"]);
        let (of_child, ours) = (user(pid).expect("a user"), user(std::process::id() as i32).expect("ours"));
        assert_eq!(of_child, ours);
        let has = |programs: &[&[u8]], marker: &[u8]| has_marker(pid, programs, marker).expect("a look");
        assert!(has(&programs, b"marker"));
        assert!(!has(&programs, b"other"), "another argument");
        assert!(!has(&[b"bash"], b"marker"), "another program");
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert_eq!(user(pid).expect("a look"), None);
    }

    #[test]
    fn a_pid_that_was_given_out_anew_is_not_taken_for_the_old_process() {
        let me = Identity::of(std::process::id() as i32).expect("a look").expect("we are alive");
        assert!(me.open().expect("a look").is_some());
        let earlier = Identity { start_time: me.start_time - 1, ..me };
        assert!(earlier.open().expect("a look").is_none());
    }

    #[test]
    fn a_process_whose_number_a_thread_has_is_gone() {
        let opened = std::thread::spawn(|| {
            let me = Identity::of(rustix::thread::gettid().as_raw_nonzero().get()).expect("a look");
            me.expect("a thread has an identity, too").open()
        });
        assert!(opened.join().expect("the thread").expect("a look").is_none());
    }

    #[test]
    fn a_stopped_process_records_no_end_so_its_id_is_not_assigned_again() {
        let mut parent = std::process::Command::new("sh")
            .args(["-c", "sleep 600 & echo $!; wait; echo noted; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a child");
        let mut output = std::io::BufReader::new(parent.stdout.take().expect("a pipe"));
        let mut line = || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
            line.trim().to_owned()
        };
        let pid: i32 = line().parse().expect("a number");
        let open =
            |pid| Identity::of(pid).expect("a look").expect("it lives").open().expect("a look").expect("a handle");
        let (stopped, ends) = (open(parent.id() as i32), open(pid));
        stop(&stopped).expect("it stops");
        kill(&ends).expect("it is killed");
        assert!(wait_end(&ends, Duration::from_secs(60)));
        assert_eq!(Stat::read(pid).expect("a look").map(|stat| stat.state), Some(b'Z'));
        go_on(&stopped).expect("it goes on");
        assert_eq!(line(), "noted");
        assert!(Identity::of(pid).expect("a look").is_none());
        drop(parent.stdin.take());
        parent.wait().expect("it ends");
    }
}
