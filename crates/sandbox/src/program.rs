//! The sandbox's own copy of its program: one copy per version of the file, hard links from then on.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Step, StepError};
use crate::record::random_hex;

/// Where the copies stand, below the host's root.
pub(crate) fn store(root: &Path) -> PathBuf {
    root.join(".programs")
}

/// Puts a copy of `program` at `target`.
pub(crate) fn place(root: &Path, program: &Path, target: &Path) -> Result<(), StepError> {
    let source = fs::File::open(program).step("open", program)?;
    let about = source.metadata().step("look at", program)?;
    if !about.is_file() {
        return Err(std::io::Error::other("not a file")).step("use", program);
    }
    let key =
        format!("{:x}-{:x}-{:x}-{:x}-{:x}", about.dev(), about.ino(), about.mtime(), about.mtime_nsec(), about.size());
    let cached = store(root).join(key);
    if fs::hard_link(&cached, target).is_ok() {
        return Ok(());
    }
    let temporary = copy(source, &cached)?;
    // Linked by its temporary name first: from then on the copy is in use, and tidying leaves it alone.
    let linked = fs::hard_link(&temporary, target).step("link", target);
    let kept = fs::rename(&temporary, &cached).step("write", &cached);
    linked.and(kept)
}

fn copy(mut source: fs::File, cached: &Path) -> Result<PathBuf, StepError> {
    // A name of its own, then a rename: several starts at once may all be the first.
    let temporary = cached.with_extension(format!("{}.new", random_hex()?));
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(&temporary).step("make", &temporary)?;
    if rustix::fs::ioctl_ficlone(&file, &source).is_err() {
        std::io::copy(&mut source, &mut file).step("copy to", &temporary)?;
    }
    file.set_permissions(fs::Permissions::from_mode(0o755)).step("set the mode of", &temporary)?;
    Ok(temporary)
}

/// Removes copies that no sandbox uses. The next start makes its copy anew.
pub(crate) fn tidy(root: &Path) {
    let Ok(entries) = fs::read_dir(store(root)) else { return };
    for entry in entries.flatten() {
        // A copy that is being made has another name. One that is linked at this very moment keeps that link.
        let is_whole = entry.path().extension().is_none();
        if is_whole && entry.metadata().is_ok_and(|about| about.nlink() == 1) {
            fs::remove_file(entry.path()).ok();
        }
    }
}
