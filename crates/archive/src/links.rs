//! Checks the targets of symbolic links.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::EntryRefusal;

/// The maximum length of the target of a link, in bytes, as in Linux.
pub(crate) const MAX_TARGET_BYTES: u64 = 4095;

/// Accepts a link to an entry of the same archive. No entry is below a link, so the directories above a link are real
/// and leading `..` parts are resolved exactly. A `..` after a name could pass through another link and is refused.
pub(crate) fn check(path: &Path, target: &[u8]) -> Result<(), EntryRefusal> {
    if target.len() as u64 > MAX_TARGET_BYTES {
        return Err(EntryRefusal::LinkTooLong);
    }
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) {
        return Err(EntryRefusal::AbsoluteLink);
    }
    let mut depth = path.as_os_str().as_bytes().iter().filter(|byte| **byte == b'/').count();
    let mut parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).peekable();
    while parts.next_if_eq(&b"..".as_slice()).is_some() {
        depth = depth.checked_sub(1).ok_or(EntryRefusal::LinkLeavesArchive)?;
    }
    if parts.any(|part| part == b"..") { Err(EntryRefusal::LinkBehindName) } else { Ok(()) }
}
