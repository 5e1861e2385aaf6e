//! The sandboxes' copies of their programs: one copy for each version of a file, with a hard link for each sandbox.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{Step, StepError};
use crate::record::random_hex;

/// The extension of unfinished copies.
const UNFINISHED: &str = "new";
/// The age above which an unfinished copy was left by a killed server. A copy takes seconds.
const MAX_COPY: Duration = Duration::from_secs(60 * 60);

/// Returns the directory of the copies, below the host's root.
pub(crate) fn store(root: &Path) -> PathBuf {
    root.join(".programs")
}

/// Creates a link to a copy of `program` at `target`.
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
    // Copied to a unique name and then renamed, because several concurrent starts may find no copy.
    let temporary = cached.with_extension(format!("{}.{UNFINISHED}", random_hex().step("read", "/dev/urandom")?));
    let placed = copy(source, &temporary).and_then(|()| {
        // Linked before the rename: a copy with another link is in use, and the cleanup does not remove it.
        let linked = fs::hard_link(&temporary, target).step("link", target);
        let stored = fs::rename(&temporary, &cached).step("write", &cached);
        linked.and(stored)
    });
    if placed.is_err() {
        // Failing starts must not fill a full disk further.
        fs::remove_file(&temporary).ok();
    }
    placed
}

/// Copies the file in a separate process. A program that is started meanwhile would inherit a writable descriptor of
/// the copy from this process, and a file that is open for writing cannot be executed.
fn copy(source: fs::File, temporary: &Path) -> Result<(), StepError> {
    let copied = Command::new("cp")
        .args(["--reflink=auto", "--", "/dev/stdin"])
        .arg(temporary)
        .stdin(source)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .step("start cp for", temporary)?;
    if !copied.status.success() {
        let output = String::from_utf8_lossy(&copied.stderr).trim().to_owned();
        return Err(std::io::Error::other(output)).step("copy to", temporary);
    }
    fs::set_permissions(temporary, fs::Permissions::from_mode(0o755)).step("set the mode of", temporary)
}

/// Removes copies that no sandbox uses, and old unfinished ones. The next start makes a new copy.
pub(crate) fn remove_stale(root: &Path) {
    let Ok(entries) = fs::read_dir(store(root)) else { return };
    for entry in entries.flatten() {
        if entry.metadata().is_ok_and(|about| is_left(&entry.path(), &about)) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

fn is_left(path: &Path, about: &fs::Metadata) -> bool {
    match path.extension() {
        // A copy that is in use has another link.
        None => about.nlink() == 1,
        // Another server may be writing the copy. A sandbox that uses it already has a separate link.
        Some(extension) => extension == UNFINISHED && is_old(about),
    }
}

fn is_old(about: &fs::Metadata) -> bool {
    let age = about.modified().ok().and_then(|written| written.elapsed().ok());
    age.is_some_and(|age| age >= MAX_COPY)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// Creates a root with a program for one test.
    fn root() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(store(root.path())).expect("a store");
        let program = root.path().join("original");
        fs::write(&program, "#!/bin/sh\n").expect("a program");
        (root, program)
    }

    fn unfinished(root: &Path, name: &str, age: Duration) {
        let path = store(root).join(format!("1-2-3-4-5.{name}.new"));
        let file = fs::File::create(path).expect("a file");
        #[expect(clippy::disallowed_methods, reason = "the age of a file is by the system's clock")]
        let now = SystemTime::now();
        file.set_modified(now - age).expect("its time is set");
    }

    fn stored(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(store(root)).expect("a store").flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    #[test]
    fn unfinished_copies_of_a_killed_server_are_removed_after_an_hour() {
        let (root, _) = root();
        unfinished(root.path(), "killed", MAX_COPY + Duration::from_secs(60));
        unfinished(root.path(), "working", Duration::from_secs(60));
        remove_stale(root.path());
        assert_eq!(stored(root.path()), ["1-2-3-4-5.working.new"]);
    }

    #[test]
    fn a_copy_stays_for_as_long_as_a_sandbox_uses_it() {
        let (root, program) = root();
        let target = root.path().join("program");
        place(root.path(), &program, &target).expect("it is placed");
        remove_stale(root.path());
        assert_eq!(stored(root.path()).len(), 1);
        fs::remove_file(target).expect("the sandbox ends");
        remove_stale(root.path());
        assert_eq!(stored(root.path()), <[&str; 0]>::default());
    }

    #[test]
    fn a_placing_that_fails_leaves_no_copy_that_is_not_finished() {
        let (root, program) = root();
        let nowhere = root.path().join("no such directory/program");
        place(root.path(), &program, &nowhere).expect_err("there is no such directory");
        assert!(stored(root.path()).iter().all(|name| !name.ends_with(".new")));
        place(root.path(), root.path(), &root.path().join("program")).expect_err("a directory is no program");
        assert!(!root.path().join("program").exists());
    }
}
