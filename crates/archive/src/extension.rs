//! Archives of browser extensions.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use crate::{ArchiveError, Kind, Limits, unpack, walk};

/// How much an extension's archive may hold.
pub const LIMITS: Limits = Limits { entries: 20_000, bytes: 512 << 20, depth: 32, links: false };

/// What says what an extension is, at the root of the archive or in its one top folder.
const MANIFEST: &str = "manifest.json";
/// The longest of them, in bytes.
const MAX_MANIFEST: u64 = 1 << 20;
/// What a Mac puts beside the top folder.
const BESIDE: &str = "__MACOSX";

/// Looks through a whole archive: whether it may be unpacked, and where in it the extension lies: in its root (`None`), or in its one
/// top folder.
///
/// # Errors
/// See [`ArchiveError`].
pub fn inspect(archive: File) -> Result<Option<String>, ArchiveError> {
    let mut found = Found::default();
    walk(archive, LIMITS, |entry, content| {
        let (first, rest) = entry.path.split_once('/').unwrap_or((entry.path, ""));
        if first == BESIDE {
            return Ok(());
        }
        if entry.kind == Kind::File && entry.path == MANIFEST {
            found.at_root = Some(read(content)?);
        } else if entry.kind == Kind::File && rest == MANIFEST {
            found.in_folder = Some((first.to_owned(), read(content)?));
        }
        if rest.is_empty() && entry.kind == Kind::File {
            found.root_has_files = true;
        } else if found.folder.as_deref().is_some_and(|folder| folder != first) {
            found.folders_differ = true;
        } else {
            found.folder = Some(first.to_owned());
        }
        Ok(())
    })?;
    found.manifest()
}

#[derive(Default)]
struct Found {
    at_root: Option<Vec<u8>>,
    in_folder: Option<(String, Vec<u8>)>,
    folder: Option<String>,
    folders_differ: bool,
    root_has_files: bool,
}

impl Found {
    fn manifest(self) -> Result<Option<String>, ArchiveError> {
        if let Some(manifest) = self.at_root {
            return check(&manifest).map(|()| None);
        }
        match self.in_folder {
            Some((folder, manifest)) if !self.folders_differ && !self.root_has_files => {
                check(&manifest).map(|()| Some(folder))
            }
            _ => {
                let why = "the archive has no manifest.json at its root or in its one top folder";
                Err(ArchiveError::Refused(why.to_owned()))
            }
        }
    }
}

fn read(content: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut manifest = Vec::new();
    content.take(MAX_MANIFEST + 1).read_to_end(&mut manifest)?;
    Ok(manifest)
}

/// Whether this could be a manifest. Chromium has the last word; it knows comments, which JSON does not.
fn check(manifest: &[u8]) -> Result<(), ArchiveError> {
    let refuse = |why: &str| Err(ArchiveError::Refused(format!("manifest.json {why}")));
    if manifest.len() as u64 > MAX_MANIFEST {
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

/// Looks through an archive and unpacks the extension in it into `directory`, which is there and empty.
///
/// # Errors
/// See [`ArchiveError`].
pub fn install(archive: File, directory: &Path) -> Result<(), ArchiveError> {
    let top = inspect(archive.try_clone()?)?;
    unpack(archive, LIMITS, top.as_deref(), directory)
}
