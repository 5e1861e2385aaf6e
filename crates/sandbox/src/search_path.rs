//! The programs of this system.

use std::path::PathBuf;

/// Searches the first of these programs on `PATH` and in `/usr/bin`. Links are resolved, because a sandbox may not
/// contain their targets.
#[must_use]
pub fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).chain([PathBuf::from("/usr/bin")]).collect();
    let mut candidates = names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    candidates.find(|path| path.is_absolute() && path.is_file())?.canonicalize().ok()
}
