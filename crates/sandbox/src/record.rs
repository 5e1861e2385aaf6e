//! What is written about a sandbox, so that a later life of the server finds it.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroups;
use crate::error::{Step, StepError};
use crate::process::Identity;

/// The largest record that is read; ours are below 1 KiB.
const MAX_BYTES: u64 = 64 * 1024;

/// What holds the memory of a sandbox down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryLimit {
    /// A control group of version 2.
    CgroupV2,
    /// A control group of version 1.
    CgroupV1,
    /// Nothing: it has to be looked at, see [`crate::Sandbox::over_memory`].
    None,
}

/// One sandbox, as it stands in its `state.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// 128 random bits, in hexadecimal.
    pub(crate) nonce: String,
    /// The boot in which the processes were made: those of another boot are gone, whatever has their pids.
    pub(crate) boot: String,
    pub(crate) host_uid: Option<u32>,
    pub(crate) started_ms: u64,
    pub(crate) sockets: usize,
    pub(crate) memory: MemoryLimit,
    pub(crate) cgroups: Cgroups,
    /// bubblewrap's process outside, and the first process inside. `None` while the start is not complete.
    pub(crate) processes: Option<Processes>,
}

/// The two processes of bubblewrap, as the host sees them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Processes {
    pub(crate) monitor: Identity,
    pub(crate) init: Identity,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

impl Record {
    /// Reads the record of a sandbox directory; `None` where there is none that can be understood.
    ///
    /// # Errors
    /// If it cannot be read now: it may be a good one.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, StepError> {
        let mut text = Vec::new();
        let read = fs::File::open(path(dir)).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text));
        match read {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            read => read.step("read", path(dir)).map(|_| serde_json::from_slice(&text).ok()),
        }
    }

    /// Writes it whole or not at all.
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
        // Not synced: the processes that it names do not survive what a sync protects from.
        file.write_all(&text).step("write", &temporary)?;
        fs::rename(&temporary, &target).step("write", &target)
    }

    /// Its processes, if this is still the boot in which they were made.
    pub(crate) fn live_processes(&self) -> io::Result<Option<Processes>> {
        let Some(processes) = self.processes else { return Ok(None) };
        Ok((self.boot == boot_id()?).then_some(processes))
    }
}

/// The id of this boot of the kernel; empty where the kernel tells none.
pub(crate) fn boot_id() -> io::Result<String> {
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        id => Ok(id?.trim().to_owned()),
    }
}

/// 128 random bits in hexadecimal.
pub(crate) fn random_hex() -> Result<String, StepError> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)).step("read", "/dev/urandom")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "for a person to read beside the system's own logs; nothing is decided by it"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as u64)
}
