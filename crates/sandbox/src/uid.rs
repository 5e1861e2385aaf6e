//! One host user per sandbox, when the server runs as root.
//!
//! The claims of all servers of a machine stand in one place, because the users are those of the machine. A claim is a
//! file that names the directory of its sandbox, and it is over when that directory is gone and no process of that user
//! is left.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{StartError, Step, StepError};
use crate::process;

const CLAIMS: &str = "/run/casement/uids";

/// Claims a user of the range for the sandbox of `dir`, which must be there already.
pub(crate) fn claim(base: u32, count: u32, dir: &Path) -> Result<u32, StartError> {
    let _lock = lock()?;
    let busy = owners();
    for uid in (base..).take(count as usize) {
        if busy.contains(&uid) || !is_free(uid) {
            continue;
        }
        fs::write(path(uid), dir.as_os_str().as_bytes()).step("write", path(uid))?;
        return Ok(uid);
    }
    Err(StartError::NoUidLeft(count))
}

/// Gives the user back, if it is claimed for `dir`.
pub(crate) fn release(uid: u32, dir: &Path) {
    let Ok(_lock) = lock() else { return };
    if holder(uid).as_deref() == Some(dir) {
        fs::remove_file(path(uid)).ok();
    }
}

/// The users that are claimed for the sandbox of `dir`.
pub(crate) fn claimed_for(dir: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(CLAIMS) else { return Vec::new() };
    let uids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    uids.filter(|uid| holder(*uid).as_deref() == Some(dir)).collect()
}

fn is_free(uid: u32) -> bool {
    match holder(uid) {
        None => true,
        Some(dir) => !dir.exists() && process::living(|pid| process::user(pid) == Some(uid)).is_empty(),
    }
}

fn holder(uid: u32) -> Option<PathBuf> {
    let bytes = fs::read(path(uid)).ok()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&bytes)))
}

fn path(uid: u32) -> PathBuf {
    Path::new(CLAIMS).join(uid.to_string())
}

fn lock() -> Result<fs::File, StepError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(CLAIMS).step("make", CLAIMS)?;
    let path = Path::new(CLAIMS).join("lock");
    let file = fs::OpenOptions::new().create(true).append(true).open(&path).step("open", &path)?;
    flock(&file, FlockOperation::LockExclusive).step("lock", &path)?;
    Ok(file)
}

/// The users that own a process now, as far as one look at each tells: whoever uses our range without a claim is left alone.
fn owners() -> HashSet<u32> {
    process::all_pids().into_iter().filter_map(process::user).collect()
}
