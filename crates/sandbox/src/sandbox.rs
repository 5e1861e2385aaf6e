//! A started sandbox of this or of an earlier server process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use crate::kernel_log::{self, OomKill};
use crate::process;
use crate::record::{MemoryLimit, Record};

/// The size limit of the program's output, in bytes. Further writes of the program fail.
pub(crate) const LOG_BYTES: u64 = 64 * 1024;

/// The number of checks for a kill by the kernel after a report of full memory, and the pause between them.
const OOM_LOOKS: u32 = 20;
const OOM_PAUSE: std::time::Duration = std::time::Duration::from_millis(25);
/// The interval of these checks if the kernel sends no reports.
const OOM_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// The interval of memory measurements without a control group.
const MEMORY_INTERVAL: Duration = Duration::from_millis(500);

/// A sandbox. Clones share their state. The sandbox continues when all of them are dropped.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// The id of the sandbox.
    pub id: String,
    /// The sandbox's directory on the host.
    pub dir: PathBuf,
    /// 128 random bits in hexadecimal, created at the start, which identify the program of this start.
    pub nonce: String,
    /// The host's pid of the first process inside. Informational only, because pids are reused.
    pub init_pid: i32,
    /// The host user of the processes, if the server runs as root.
    pub host_uid: Option<u32>,
    /// The kind of the memory limit.
    pub memory: MemoryLimit,
    /// The time of the start.
    pub started: SystemTime,
    sockets: usize,
    monitor_pid: i32,
    cgroups: crate::cgroup::Cgroups,
    /// Handles on the first process inside and on bubblewrap's process outside, which ends with the program. `None` if
    /// one of them had ended before the sandbox was found.
    handles: Option<Arc<[OwnedFd; 2]>>,
    log: Option<Arc<std::fs::File>>,
}

impl Sandbox {
    /// Creates the sandbox of a complete record; `None` if its start is not complete.
    pub(crate) fn of(record: Record, dir: PathBuf, log: Option<std::fs::File>) -> io::Result<Option<Self>> {
        let Some(processes) = record.processes else { return Ok(None) };
        let handles = match record.live_processes()? {
            Some(both) => both.init.open()?.zip(both.monitor.open()?),
            None => None,
        };
        Ok(Some(Self {
            id: record.id,
            dir,
            nonce: record.nonce,
            init_pid: processes.init.pid,
            host_uid: record.host_uid,
            memory: record.memory,
            started: UNIX_EPOCH + Duration::from_millis(record.started_ms),
            sockets: record.sockets,
            monitor_pid: processes.monitor.pid,
            cgroups: record.cgroups,
            handles: handles.map(|(init, monitor)| Arc::new([init, monitor])),
            log: log.map(Arc::new),
        }))
    }

    /// Returns true if the program runs. When the program ends, all other processes of the sandbox are killed.
    pub fn is_alive(&self) -> bool {
        self.handles.as_ref().is_some_and(|both| !both.iter().any(process::ended))
    }

    /// Returns when the program has ended. [`crate::Host::end`] then removes the remains.
    ///
    /// # Errors
    /// If the processes cannot be watched: outside a runtime with I/O, or without free descriptors.
    pub async fn exited(&self) -> io::Result<()> {
        let Some(both) = &self.handles else { return Ok(()) };
        tokio::select! {
            ended = ended(&both[0]) => ended,
            ended = ended(&both[1]) => ended,
        }
    }

    /// Returns the host's pids of the living processes, including bubblewrap's own; only the latter if the others
    /// cannot be examined.
    pub async fn pids(&self) -> Vec<i32> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.pids_now()).await.unwrap_or_default()
    }

    /// Returns the proportional set size of all processes in bytes. For an ordinary user it is a lower bound, because
    /// the kernel hides the shared part of a browser's sandboxed processes.
    pub async fn memory_pss(&self) -> u64 {
        let this = self.clone();
        let sum = move || this.pids_now().into_iter().map(process::pss_bytes).sum();
        tokio::task::spawn_blocking(sum).await.unwrap_or_default()
    }

    /// Returns when all processes and files together use more than `limit` bytes. Measures from the host, so that
    /// nothing inside can prevent it. For hosts without a memory limit.
    pub async fn over_memory(&self, limit: u64) {
        // A single measurement may be wrong if the state changes meanwhile.
        let mut before = false;
        loop {
            tokio::time::sleep(MEMORY_INTERVAL).await;
            let this = self.clone();
            let looked = tokio::task::spawn_blocking(move || crate::memory::is_over_outside(limit, &this.inside_now()));
            let is_over = matches!(looked.await, Ok(true));
            if is_over && before {
                return;
            }
            before = is_over;
        }
    }

    /// Returns the processes inside.
    fn inside_now(&self) -> Vec<i32> {
        let mut pids = self.pids_now();
        pids.retain(|pid| *pid != self.monitor_pid);
        pids
    }

    fn pids_now(&self) -> Vec<i32> {
        let Some(both) = &self.handles else { return Vec::new() };
        let mut pids = process::tree(self.init_pid).unwrap_or_default();
        // If the first process has ended, its pid may belong to another process, and so does the tree.
        if process::ended(&both[0]) {
            pids.clear();
        }
        if !process::ended(&both[1]) {
            pids.push(self.monitor_pid);
        }
        pids
    }

    /// Returns true if the kernel has killed a process of the sandbox because its memory was full. Known until
    /// [`crate::Host::end`], and only if [`Sandbox::memory`] is not [`MemoryLimit::None`].
    pub fn oom_killed(&self) -> bool {
        self.cgroups.has_oom_kill()
    }

    /// Returns when the kernel has killed a process of the sandbox because its memory was full; never if nothing limits
    /// the memory. Checks every two seconds if the kernel sends no reports: a user may have 128 inotify instances by
    /// default, and each sandbox with a control group of version 2 needs one.
    ///
    /// # Errors
    /// If the group that limits the memory no longer exists.
    pub async fn out_of_memory(&self) -> io::Result<()> {
        loop {
            let Err(error) = self.reported_out_of_memory().await else { return Ok(()) };
            if self.oom_killed() {
                return Ok(());
            }
            if error.kind() == io::ErrorKind::NotFound {
                return Err(error);
            }
            tracing::trace!(sandbox = self.id, %error, "no reports of full memory; checking periodically");
            tokio::time::sleep(OOM_WAIT).await;
        }
    }

    /// Waits for a report of the kernel.
    async fn reported_out_of_memory(&self) -> io::Result<()> {
        let Some(full) = self.cgroups.memory_full()? else { return std::future::pending().await };
        let full = watched(full)?;
        loop {
            if self.oom_killed() {
                return Ok(());
            }
            let mut ready = full.readable().await?;
            let mut report = [0; 1024];
            if rustix::io::read(full.get_ref(), &mut report) == Err(rustix::io::Errno::AGAIN) {
                ready.clear_ready();
            }
            // Older kernels report first and kill afterwards.
            for _ in 0..OOM_LOOKS {
                if self.oom_killed() {
                    return Ok(());
                }
                tokio::time::sleep(OOM_PAUSE).await;
            }
        }
    }

    /// Returns the process that the kernel killed because the sandbox's memory was full; `None` if the kernel's log
    /// does not record it or may not be read. Known once [`Sandbox::oom_killed`] is true.
    pub async fn oom_kill(&self) -> Option<OomKill> {
        for _ in 0..OOM_LOOKS {
            let group = self.cgroups.memory_name()?.to_owned();
            let looked = tokio::task::spawn_blocking(move || kernel_log::oom_kill(&group)).await;
            // The kernel counts the kill first and logs it afterwards.
            match looked {
                Ok(None) => tokio::time::sleep(OOM_PAUSE).await,
                other => return other.ok().flatten(),
            }
        }
        None
    }

    /// Returns the number of the sandbox's listening sockets.
    pub fn sockets(&self) -> usize {
        self.sockets
    }

    /// Returns the host's path of the listening socket `n`, counted from 0, which is the program's descriptor `3 + n`.
    /// The path may be too long for a socket address; [`Sandbox::connect`] supports that.
    pub fn listener_path(&self, n: usize) -> PathBuf {
        sockets_dir(&self.dir).join(n.to_string())
    }

    /// Connects to the listening socket `n`. Its path may have any length.
    ///
    /// # Errors
    /// The error of the connection: not found if there is no such socket, refused if no process has it open.
    pub async fn connect(&self, n: usize) -> io::Result<UnixStream> {
        let dir = open_dir(&sockets_dir(&self.dir))?;
        UnixStream::connect(short_path(&dir, n)).await
    }

    /// Returns the beginning of the program's standard output and error, at most 64 KiB; later output is lost. Returns
    /// `None` in a server process that did not start the sandbox.
    pub fn log(&self) -> Option<String> {
        self.log.as_deref().map(read_log)
    }
}

async fn ended(handle: &OwnedFd) -> io::Result<()> {
    // A separate descriptor for each waiter, because a descriptor can be registered only once.
    watched(handle.try_clone()?)?.readable().await?.retain_ready();
    Ok(())
}

fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(deprecated, reason = "sound for an OwnedFd, which is the same descriptor for as long as it lives")]
    AsyncFd::with_interest(fd, Interest::READABLE)
}

pub(crate) fn read_log(file: &std::fs::File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; LOG_BYTES as usize];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    let written = bytes[..read].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    String::from_utf8_lossy(&bytes[..written]).into_owned()
}

pub(crate) fn sockets_dir(dir: &Path) -> PathBuf {
    dir.join("sockets")
}

/// Opens a directory to name its entries with [`short_path`].
pub(crate) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Returns a path of socket `n` in an open directory that always fits into a socket address.
pub(crate) fn short_path(dir: &OwnedFd, n: usize) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{n}", dir.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Identity;
    use crate::record::Processes;

    fn sandbox(memory: &Path) -> anyhow::Result<Sandbox> {
        let no_process = Identity { pid: i32::MAX, start_time: 0 };
        let record = Record {
            id: "a".to_owned(),
            nonce: String::new(),
            boot: "another".to_owned(),
            host_uid: None,
            started_ms: 0,
            sockets: 0,
            memory: MemoryLimit::CgroupV1,
            cgroups: serde_json::from_value(serde_json::json!({ "memory": memory, "pids": null }))?,
            processes: Some(Processes { monitor: no_process, init: no_process }),
        };
        anyhow::Context::context(Sandbox::of(record, memory.to_owned(), None)?, "a complete record")
    }

    /// Simulates a kernel that refuses to send reports.
    #[tokio::test]
    async fn full_memory_is_noticed_without_reports_of_the_kernel() -> anyhow::Result<()> {
        let group = tempfile::tempdir()?;
        let control = group.path().join("memory.oom_control");
        std::fs::write(&control, "oom_kill 0\n")?;
        std::fs::create_dir(group.path().join("cgroup.event_control"))?;
        let sandbox = sandbox(group.path())?;
        assert!(sandbox.cgroups.memory_full().is_err());
        let mut noticed = std::pin::pin!(sandbox.out_of_memory());
        assert!(tokio::time::timeout(OOM_PAUSE, &mut noticed).await.is_err(), "no_process was killed yet");
        std::fs::write(&control, "oom_kill 1\n")?;
        tokio::time::timeout(30 * OOM_WAIT, noticed).await??;
        Ok(())
    }

    #[tokio::test]
    async fn an_ended_group_is_not_awaited() -> anyhow::Result<()> {
        let sandbox = sandbox(Path::new("/no/such/group"))?;
        let awaited = tokio::time::timeout(30 * OOM_WAIT, sandbox.out_of_memory()).await?;
        assert_eq!(awaited.map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
        Ok(())
    }
}
