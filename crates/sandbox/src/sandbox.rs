//! A sandbox that was started, now or by an earlier life of the server.

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

/// The most of a program's output that is kept. What comes after is refused to the program, not stored.
pub(crate) const LOG_BYTES: u64 = 64 * 1024;

/// How often, and with what pauses, it is looked whether the kernel killed somebody after it said that memory is full.
const OOM_LOOKS: u32 = 20;
const OOM_PAUSE: std::time::Duration = std::time::Duration::from_millis(25);
/// How often it is looked where the kernel cannot be had to tell.
const OOM_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// How often it is looked what it holds, where no control group does.
const MEMORY_INTERVAL: Duration = Duration::from_millis(500);

/// One sandbox. Cheap to clone; holding it keeps nothing alive and dropping it ends nothing.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// Its name.
    pub id: String,
    /// Its directory on the host.
    pub dir: PathBuf,
    /// 128 random bits in hexadecimal, made at its start: whoever speaks it is the program of exactly this start.
    pub nonce: String,
    /// The first process inside, as the host numbers it. For a person to read: pids are given out anew.
    pub init_pid: i32,
    /// The user of the host that its processes have, when the server runs as root.
    pub host_uid: Option<u32>,
    /// What holds its memory down.
    pub memory: MemoryLimit,
    /// When it was started.
    pub started: SystemTime,
    sockets: usize,
    monitor_pid: i32,
    cgroups: crate::cgroup::Cgroups,
    /// Of the first process inside and of bubblewrap's outside, which ends with the program. `None` when one of them had
    /// ended before the sandbox was found.
    handles: Option<Arc<[OwnedFd; 2]>>,
    log: Option<Arc<std::fs::File>>,
}

impl Sandbox {
    /// The sandbox of a complete record; `None` while its start is not complete.
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

    /// Whether its program lives. When the program ends, everything else in the sandbox is killed.
    pub fn is_alive(&self) -> bool {
        self.handles.as_ref().is_some_and(|both| !both.iter().any(process::ended))
    }

    /// Returns when its program has ended, at once if that is so already. [`crate::Host::end`] then removes what is left.
    ///
    /// # Errors
    /// If the processes cannot be watched (outside a runtime with I/O, or without descriptors left).
    pub async fn exited(&self) -> io::Result<()> {
        let Some(both) = &self.handles else { return Ok(()) };
        tokio::select! {
            ended = ended(&both[0]) => ended,
            ended = ended(&both[1]) => ended,
        }
    }

    /// The pids of its living processes as the host numbers them, bubblewrap's own included; without the others where they cannot be
    /// looked at.
    pub async fn pids(&self) -> Vec<i32> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.pids_now()).await.unwrap_or_default()
    }

    /// Proportional set size of all its processes, in bytes. As an ordinary user a lower bound: the kernel hides the
    /// shared part of a browser's sandboxed processes.
    pub async fn memory_pss(&self) -> u64 {
        let this = self.clone();
        let sum = move || this.pids_now().into_iter().map(process::pss_bytes).sum();
        tokio::task::spawn_blocking(sum).await.unwrap_or_default()
    }

    /// Returns once all processes and files of it together hold more than `limit` bytes, looked at from outside: nothing inside can stop
    /// that. For hosts where nothing limits its memory.
    pub async fn over_memory(&self, limit: u64) {
        // What changes while it is looked at may look wrong once.
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

    /// The processes inside.
    fn inside_now(&self) -> Vec<i32> {
        let mut pids = self.pids_now();
        pids.retain(|pid| *pid != self.monitor_pid);
        pids
    }

    fn pids_now(&self) -> Vec<i32> {
        let Some(both) = &self.handles else { return Vec::new() };
        let mut pids = process::tree(self.init_pid).unwrap_or_default();
        // Ended before or meanwhile: then the number may be that of a stranger, whose processes these are.
        if process::ended(&both[0]) {
            pids.clear();
        }
        if !process::ended(&both[1]) {
            pids.push(self.monitor_pid);
        }
        pids
    }

    /// Whether the kernel has killed a process of it because its memory was full. Known until the sandbox is ended by
    /// [`crate::Host::end`], and only where [`Sandbox::memory`] is not [`MemoryLimit::None`].
    pub fn oom_killed(&self) -> bool {
        self.cgroups.has_oom_kill()
    }

    /// Returns once the kernel has killed a process of it because its memory was full; never where nothing limits it. Where the kernel
    /// cannot be had to tell, it is looked every two seconds: a user may have 128 watches on files, unless told otherwise, and each sandbox
    /// with a control group of version 2 takes one.
    ///
    /// # Errors
    /// If the group that limits its memory is gone.
    pub async fn out_of_memory(&self) -> io::Result<()> {
        loop {
            let Err(error) = self.told_out_of_memory().await else { return Ok(()) };
            if self.oom_killed() {
                return Ok(());
            }
            if error.kind() == io::ErrorKind::NotFound {
                return Err(error);
            }
            tracing::trace!(sandbox = self.id, %error, "its memory is looked at from time to time: the kernel does not tell");
            tokio::time::sleep(OOM_WAIT).await;
        }
    }

    /// The same, as far as the kernel tells.
    async fn told_out_of_memory(&self) -> io::Result<()> {
        let Some(full) = self.cgroups.memory_full()? else { return std::future::pending().await };
        let full = watched(full)?;
        loop {
            if self.oom_killed() {
                return Ok(());
            }
            let mut ready = full.readable().await?;
            let mut told = [0; 1024];
            if rustix::io::read(full.get_ref(), &mut told) == Err(rustix::io::Errno::AGAIN) {
                ready.clear_ready();
            }
            // Older kernels tell it first and kill then.
            for _ in 0..OOM_LOOKS {
                if self.oom_killed() {
                    return Ok(());
                }
                tokio::time::sleep(OOM_PAUSE).await;
            }
        }
    }

    /// Which process of it the kernel killed because its memory was full; `None` where the kernel's log does not say so, or may not
    /// be read. Known once [`Sandbox::oom_killed`] is.
    pub async fn oom_kill(&self) -> Option<OomKill> {
        for _ in 0..OOM_LOOKS {
            let group = self.cgroups.memory_name()?.to_owned();
            let looked = tokio::task::spawn_blocking(move || kernel_log::oom_kill(&group)).await;
            // It is counted first and said then.
            match looked {
                Ok(None) => tokio::time::sleep(OOM_PAUSE).await,
                other => return other.ok().flatten(),
            }
        }
        None
    }

    /// How many listening sockets it was given.
    pub fn sockets(&self) -> usize {
        self.sockets
    }

    /// Where the host reaches its listening socket `n`, counted from 0: the program's descriptor `3 + n`. The path may be
    /// too long for a socket address; [`Sandbox::connect`] is not troubled by that.
    pub fn listener_path(&self, n: usize) -> PathBuf {
        sockets_dir(&self.dir).join(n.to_string())
    }

    /// Connects to its listening socket `n`, however long the path is.
    ///
    /// # Errors
    /// What connecting gives: not found when there is no such socket, refused when nobody has it open any more.
    pub async fn connect(&self, n: usize) -> io::Result<UnixStream> {
        let dir = open_dir(&sockets_dir(&self.dir))?;
        UnixStream::connect(short_path(&dir, n)).await
    }

    /// The beginning of what the program wrote to its standard output and error, at most 64 KiB; what it writes after that
    /// is lost. Only in the life of the server that started it.
    pub fn log(&self) -> Option<String> {
        self.log.as_deref().map(read_log)
    }
}

async fn ended(handle: &OwnedFd) -> io::Result<()> {
    // A descriptor of its own for each who waits: one can be registered only once.
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

/// A directory, opened only to name things in it.
pub(crate) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A name for socket `n` in an open directory that always fits in a socket address.
pub(crate) fn short_path(dir: &OwnedFd, n: usize) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{n}", dir.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Identity;
    use crate::record::Processes;

    fn sandbox(memory: &Path) -> anyhow::Result<Sandbox> {
        let nobody = Identity { pid: i32::MAX, start_time: 0 };
        let record = Record {
            id: "a".to_owned(),
            nonce: String::new(),
            boot: "another".to_owned(),
            host_uid: None,
            started_ms: 0,
            sockets: 0,
            memory: MemoryLimit::CgroupV1,
            cgroups: serde_json::from_value(serde_json::json!({ "memory": memory, "pids": null }))?,
            processes: Some(Processes { monitor: nobody, init: nobody }),
        };
        anyhow::Context::context(Sandbox::of(record, memory.to_owned(), None)?, "a complete record")
    }

    /// As when all watches that a user may have are taken.
    #[tokio::test]
    async fn full_memory_is_noticed_though_the_kernel_cannot_be_had_to_tell() -> anyhow::Result<()> {
        let group = tempfile::tempdir()?;
        let control = group.path().join("memory.oom_control");
        std::fs::write(&control, "oom_kill 0\n")?;
        std::fs::create_dir(group.path().join("cgroup.event_control"))?;
        let sandbox = sandbox(group.path())?;
        assert!(sandbox.cgroups.memory_full().is_err());
        let mut noticed = std::pin::pin!(sandbox.out_of_memory());
        assert!(tokio::time::timeout(OOM_PAUSE, &mut noticed).await.is_err(), "nobody was killed yet");
        std::fs::write(&control, "oom_kill 1\n")?;
        tokio::time::timeout(30 * OOM_WAIT, noticed).await??;
        Ok(())
    }

    #[tokio::test]
    async fn of_a_group_that_is_gone_nothing_is_awaited() -> anyhow::Result<()> {
        let sandbox = sandbox(Path::new("/no/such/group"))?;
        let awaited = tokio::time::timeout(30 * OOM_WAIT, sandbox.out_of_memory()).await?;
        assert_eq!(awaited.map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
        Ok(())
    }
}
