//! Packs and inspects the source code that callers deploy.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use async_zip::base::write::ZipFileWriter;
use async_zip::{Compression, ZipEntryBuilder};
use futures_lite::future::block_on;

use crate::{ArchiveError, Kind, Limits, walk};

/// The names that are never packed, because every build recreates their content or does not need it.
const EXCLUDED: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    ".venv",
    "venv",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".DS_Store",
];

/// The bounds of a package.
pub const LIMITS: Limits = Limits { entries: 50_000, bytes: 1 << 30, path_bytes: 1024, depth: 64, links: true };

/// The maximum size of the archive of a package, in bytes.
pub const MAX_BYTES: u64 = 256 << 20;

/// Checks a whole archive and returns true if it contains a file at `path`.
///
/// # Errors
/// See [`ArchiveError`].
pub fn inspect(archive: File, path: &str) -> Result<bool, ArchiveError> {
    let mut found = false;
    walk(archive, LIMITS, |entry, _| {
        found |= entry.kind == Kind::File && entry.path == Path::new(path);
        Ok::<_, ArchiveError>(())
    })?;
    Ok(found)
}

/// Packs a folder without what a build recreates, such as `node_modules`. Follows links. The same files result in the
/// same archive, whatever their times. Blocks; one file at a time is in memory besides the archive.
///
/// # Errors
/// If something cannot be read, or exceeds [`LIMITS`].
pub fn pack(folder: &Path) -> io::Result<Vec<u8>> {
    pack_without(folder, EXCLUDED)
}

/// Packs all files of a folder, like [`pack`] otherwise.
///
/// # Errors
/// If something cannot be read, or exceeds [`LIMITS`].
pub fn pack_all(folder: &Path) -> io::Result<Vec<u8>> {
    pack_without(folder, &[])
}

fn pack_without(folder: &Path, excluded: &[&str]) -> io::Result<Vec<u8>> {
    block_on(async {
        let mut package = PackageWriter { zip: ZipFileWriter::new(Vec::new()), entries: 0, bytes: 0 };
        for (path, name) in files_below(folder, excluded)? {
            package.add(&path, name).await?;
        }
        package.zip.close().await.map_err(io::Error::other)
    })
}

/// Lists the files to pack with their names in the archive, sorted by name.
fn files_below(folder: &Path, excluded: &[&str]) -> io::Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = folders.pop() {
        if depth >= LIMITS.depth {
            return Err(io::Error::other(format!(
                "{} is nested too deeply, or links to its own parent",
                folder.display()
            )));
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name =
                entry.file_name().into_string().map_err(|name| io::Error::other(format!("{name:?} is not UTF-8")))?;
            if excluded.contains(&name.as_str()) {
                continue;
            }
            let (path, name) = (entry.path(), format!("{prefix}{name}"));
            let metadata = metadata(&path)?;
            if metadata.is_dir() {
                folders.push((path, format!("{name}/"), depth + 1));
            } else if metadata.is_file() {
                files.push((path, name));
            }
        }
        if files.len() as u64 > LIMITS.entries {
            return Err(too_much());
        }
    }
    files.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
    Ok(files)
}

struct PackageWriter {
    zip: ZipFileWriter<Vec<u8>>,
    entries: u64,
    bytes: u64,
}

impl PackageWriter {
    async fn add(&mut self, path: &Path, name: String) -> io::Result<()> {
        let mut content = Vec::new();
        File::open(path)?.take(LIMITS.bytes - self.bytes + 1).read_to_end(&mut content)?;
        self.entries += 1;
        self.bytes += content.len() as u64;
        if self.entries > LIMITS.entries || self.bytes > LIMITS.bytes {
            return Err(too_much());
        }
        let executable = metadata(path)?.permissions().mode() & 0o100 != 0;
        let mode = if executable { 0o100_755 } else { 0o100_644 };
        let entry = ZipEntryBuilder::new(name.into(), Compression::Deflate).unix_permissions(mode);
        self.zip.write_entry_whole(entry, &content).await.map_err(io::Error::other)
    }
}

fn metadata(path: &Path) -> io::Result<fs::Metadata> {
    fs::metadata(path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

fn too_much() -> io::Error {
    io::Error::other(format!("more than {} files or {} bytes", LIMITS.entries, LIMITS.bytes))
}
