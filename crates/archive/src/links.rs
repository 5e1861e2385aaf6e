//! Checks the targets of symbolic links.

use crate::ArchiveError;

/// The maximum length of the target of a link, in bytes.
pub(crate) const MAX_TARGET: u64 = 1024;

/// Accepts a link to an entry of the same archive. No entry is below a link, so the directories above a link are real
/// and leading `..` parts are resolved exactly. A `..` after a name could pass through another link and is refused.
pub(crate) fn check(path: &str, target: &[u8]) -> Result<(), ArchiveError> {
    let refuse = |why: &str| Err(ArchiveError::refused(path, why));
    if target.len() as u64 > MAX_TARGET {
        return refuse("leads to too long a name");
    }
    let Ok(target) = std::str::from_utf8(target) else { return refuse("leads to a name that is not UTF-8") };
    if target.is_empty() || target.starts_with('/') || target.contains(['\\', '\0']) {
        return refuse("is a link that is not relative");
    }
    let mut depth = path.split('/').count() - 1;
    let mut parts = target.split('/').filter(|part| !matches!(*part, "" | ".")).peekable();
    while parts.next_if_eq(&"..").is_some() {
        match depth.checked_sub(1) {
            Some(left) => depth = left,
            None => return refuse("is a link that leads out of the archive"),
        }
    }
    if parts.any(|part| part == "..") {
        return refuse("is a link with '..' behind a name");
    }
    Ok(())
}
