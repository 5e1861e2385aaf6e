//! Inspects and unpacks archives of browser extensions.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{ArchiveError, Kind, Limits, links, unpack, walk};

/// The bounds of an extension's archive.
pub const LIMITS: Limits = Limits { entries: 20_000, bytes: 512 << 20, path_bytes: 1024, depth: 32, links: true };

/// The name of the manifest, at the root of the archive or in its one top folder.
const MANIFEST: &str = "manifest.json";
/// The maximum size of a manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// Checks a whole archive and returns the top folder that contains the extension, or `None` for the root.
///
/// # Errors
/// See [`ArchiveError`].
pub fn inspect(archive: File) -> Result<Option<PathBuf>, ArchiveError> {
    let mut layout = Layout::default();
    walk(archive, LIMITS, |entry, content| {
        let mut parts = entry.path.iter();
        let Some(first) = parts.next().map(Path::new) else { return Ok::<_, ArchiveError>(()) };
        let rest = parts.as_path();
        if entry.kind == Kind::File && entry.path == Path::new(MANIFEST) {
            layout.at_root = Some(read_manifest(content)?);
        } else if entry.kind == Kind::File && rest == Path::new(MANIFEST) {
            layout.in_folder = Some((first.to_owned(), read_manifest(content)?));
        }
        if entry.kind == Kind::Link && layout.link_out.is_none() {
            let mut target = Vec::new();
            content.read_to_end(&mut target)?;
            let leaves = links::check(rest, &target).err();
            layout.link_out = leaves.map(|why| ArchiveError::entry(entry.path, why));
        }
        if rest.as_os_str().is_empty() && entry.kind != Kind::Directory {
            layout.root_has_files |= !is_finders(first);
        } else if layout.folder.as_deref().is_some_and(|folder| folder != first) {
            layout.folders_differ = true;
        } else {
            layout.folder = Some(first.to_owned());
        }
        Ok(())
    })?;
    layout.extension_folder()
}

/// Returns true for a file that macOS adds to a folder, and so to an archive beside the top folder.
fn is_finders(name: &Path) -> bool {
    let name = name.as_os_str().as_bytes();
    name == b".DS_Store" || name.starts_with(b"._")
}

#[derive(Default)]
struct Layout {
    at_root: Option<Vec<u8>>,
    in_folder: Option<(PathBuf, Vec<u8>)>,
    folder: Option<PathBuf>,
    folders_differ: bool,
    root_has_files: bool,
    /// The first link that leads out of the folder in which it is.
    link_out: Option<ArchiveError>,
}

impl Layout {
    fn extension_folder(self) -> Result<Option<PathBuf>, ArchiveError> {
        if let Some(manifest) = self.at_root {
            return check_manifest(&manifest).map(|()| None);
        }
        match self.in_folder {
            Some((folder, manifest)) if !self.folders_differ && !self.root_has_files => {
                check_manifest(&manifest)?;
                self.link_out.map_or(Ok(Some(folder)), Err)
            }
            _ => {
                let why = "the archive has no manifest.json at its root or in its one top folder";
                Err(ArchiveError::Refused(why.to_owned()))
            }
        }
    }
}

fn read_manifest(content: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut manifest = Vec::new();
    content.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut manifest)?;
    Ok(manifest)
}

/// Checks that this could be a manifest; Chromium checks it completely. A manifest with comments is accepted unchecked:
/// Chromium accepts comments, but JSON does not.
fn check_manifest(manifest: &[u8]) -> Result<(), ArchiveError> {
    let refuse = |why: &str| Err(ArchiveError::Refused(format!("manifest.json {why}")));
    if manifest.len() as u64 > MAX_MANIFEST_BYTES {
        return refuse("is too long");
    }
    let Ok(text) = std::str::from_utf8(manifest) else { return refuse("is not UTF-8") };
    let text = text.trim_start_matches('\u{feff}');
    let manifest: Value = match serde_json::from_str(text) {
        Ok(manifest) => manifest,
        Err(_) if text.contains("//") || text.contains("/*") => return Ok(()),
        Err(error) => return refuse(&format!("is not JSON: {error}")),
    };
    if !manifest.is_object() {
        return refuse("is not an object");
    }
    if !matches!(manifest["manifest_version"].as_u64(), Some(2 | 3)) {
        return refuse("must have a manifest_version of 2 or 3");
    }
    for key in ["name", "version"] {
        if manifest[key].as_str().is_none_or(str::is_empty) {
            return refuse(&format!("must have a {key}"));
        }
    }
    Ok(())
}

/// Checks an archive and unpacks its extension into `directory`, which must exist and be empty.
///
/// # Errors
/// See [`ArchiveError`].
pub fn install(archive: File, directory: &Path) -> Result<(), ArchiveError> {
    let top = inspect(archive.try_clone()?)?;
    unpack(archive, LIMITS, top.as_deref(), directory)
}
