//! The stored record of a sandbox, with which a later server process finds the sandbox.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroups;
use crate::error::{Step, StepError};
use crate::process::Identity;

/// The maximum size of a record in bytes; real records are smaller than 1 KiB.
const MAX_BYTES: u64 = 64 * 1024;

/// The kind of memory limit of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryLimit {
    /// A control group of version 2.
    CgroupV2,
    /// A control group of version 1.
    CgroupV1,
    /// No limit: the server must measure the memory, see [`crate::Sandbox::over_memory`].
    None,
}

/// The content of a sandbox's `state.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// 128 random bits, in hexadecimal.
    pub(crate) nonce: String,
    /// The id of the boot in which the processes were created. Processes of another boot have ended.
    pub(crate) boot: String,
    pub(crate) host_uid: Option<u32>,
    pub(crate) started_ms: u64,
    pub(crate) sockets: usize,
    pub(crate) memory: MemoryLimit,
    pub(crate) cgroups: Cgroups,
    /// The two processes of bubblewrap. `None` until the start is complete.
    pub(crate) processes: Option<Processes>,
}

/// The process of bubblewrap outside and the first process inside, with their pids on the host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Processes {
    pub(crate) monitor: Identity,
    pub(crate) init: Identity,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

impl Record {
    /// Reads the record of a sandbox directory; `None` if there is no valid record.
    ///
    /// # Errors
    /// If the record cannot be read now, because it may be valid.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, StepError> {
        let mut text = Vec::new();
        let read = fs::File::open(path(dir)).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text));
        match read {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            read => read.step("read", path(dir)).map(|_| serde_json::from_slice(&text).ok()),
        }
    }

    /// Writes the record atomically.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), StepError> {
        let (temporary, target) = (dir.join("state.json.new"), path(dir));
        let text = serde_json::to_vec(self).map_err(std::io::Error::from).step("encode", &target)?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .step("make", &temporary)?;
        // Not synced, because the recorded processes end at a power failure too.
        file.write_all(&text).step("write", &temporary)?;
        fs::rename(&temporary, &target).step("write", &target)
    }

    /// Returns the recorded processes, if the machine has not rebooted since.
    pub(crate) fn live_processes(&self) -> io::Result<Option<Processes>> {
        let Some(processes) = self.processes else { return Ok(None) };
        Ok((self.boot == boot_id()?).then_some(processes))
    }
}

/// Returns the id of this boot of the kernel; empty if the kernel reports none.
pub(crate) fn boot_id() -> io::Result<String> {
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        id => Ok(id?.trim().to_owned()),
    }
}

/// Returns 128 random bits in hexadecimal.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Returns milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "for a person to read beside the system's own logs; nothing is decided by it"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as u64)
}
