//! One host user for each sandbox, if the server runs as root.
//!
//! The claims of all servers of a machine are in one directory, because users belong to the machine. A claim is a
//! file that contains the path of the sandbox's directory. It is void when the directory is removed and no process of
//! the user is left.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{StartError, Step, StepError};
use crate::process;

const CLAIMS: &str = "/run/casement/uids";

/// Claims a user of the range for the sandbox of `dir`, which must exist.
pub(crate) fn claim(base: u32, count: u32, dir: &Path) -> Result<u32, StartError> {
    let _lock = lock()?;
    let busy = owners().step("read", "/proc")?;
    for uid in (base..).take(count as usize) {
        if busy.contains(&uid) || !is_free(uid).step("look at", path(uid))? {
            continue;
        }
        fs::write(path(uid), dir.as_os_str().as_bytes()).step("write", path(uid))?;
        return Ok(uid);
    }
    Err(StartError::NoUidLeft(count))
}

/// Releases a user if it is claimed for the sandbox of `dir`.
pub(crate) fn release(uid: u32, dir: &Path) {
    let Ok(_lock) = lock() else { return };
    if matches!(holder(uid), Ok(Some(holder)) if holder == dir) {
        fs::remove_file(path(uid)).ok();
    }
}

/// Returns the users that are claimed for the sandbox of `dir`.
pub(crate) fn claimed_for(dir: &Path) -> Result<Vec<u32>, StepError> {
    let Some(entries) = if_there(fs::read_dir(CLAIMS)).step("read", CLAIMS)? else { return Ok(Vec::new()) };
    let mut claimed = Vec::new();
    for entry in entries {
        let name = entry.step("read", CLAIMS)?.file_name();
        let Some(uid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if holder(uid).step("read", path(uid))?.as_deref() == Some(dir) {
            claimed.push(uid);
        }
    }
    Ok(claimed)
}

fn is_free(uid: u32) -> io::Result<bool> {
    let Some(dir) = holder(uid)? else { return Ok(true) };
    let is_gone = !dir.try_exists().unwrap_or(true);
    Ok(is_gone && process::living(|pid| Ok(process::user(pid)? == Some(uid)))?.is_empty())
}

fn holder(uid: u32) -> io::Result<Option<PathBuf>> {
    let bytes = if_there(fs::read(path(uid)))?;
    Ok(bytes.map(|bytes| PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))))
}

fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
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

/// Returns the users that own a process, so that users of the range that run without a claim are not taken.
fn owners() -> io::Result<HashSet<u32>> {
    process::all_pids()?.into_iter().filter_map(|pid| process::user(pid).transpose()).collect()
}
