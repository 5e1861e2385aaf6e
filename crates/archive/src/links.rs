//! Where a link of an archive may lead.

use crate::ArchiveError;

/// The longest target of a link, in bytes.
pub(crate) const LONGEST: u64 = 1024;

/// Lets a link through that leads to something in the same archive, whatever other links there are: nothing lies below a link, so
/// the directories above it are real and `..` means what it says there. Behind a name it might not.
pub(crate) fn check(path: &str, target: &[u8]) -> Result<(), ArchiveError> {
    let refuse = |why: &str| Err(ArchiveError::refused(path, why));
    if target.len() as u64 > LONGEST {
        return refuse("leads to too long a name");
    }
    let Ok(target) = std::str::from_utf8(target) else { return refuse("leads to a name that is not UTF-8") };
    if target.is_empty() || target.starts_with('/') || target.contains(['\\', '\0']) {
        return refuse("is a link that is not relative");
    }
    let mut above = path.split('/').count() - 1;
    let mut parts = target.split('/').filter(|part| !matches!(*part, "" | ".")).peekable();
    while parts.next_if_eq(&"..").is_some() {
        match above.checked_sub(1) {
            Some(left) => above = left,
            None => return refuse("is a link that leads out of the archive"),
        }
    }
    if parts.any(|part| part == "..") {
        return refuse("is a link with '..' behind a name");
    }
    Ok(())
}
