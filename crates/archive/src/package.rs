//! Archives of programs that callers deploy.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use rawzip::path::EntryPath;
use rawzip::{CompressionMethod, ZipArchiveWriter};

use crate::{ArchiveError, Kind, Limits, walk};

/// What is never packed: it is made anew where a package is built, or is nobody's business there.
const LEFT_OUT: &[&str] = &[
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

/// How much a package may hold.
pub const LIMITS: Limits = Limits { entries: 50_000, bytes: 1 << 30, depth: 64, links: true };

/// The longest archive of one, in bytes.
pub const MAX_BYTES: u64 = 256 << 20;

/// Looks through a whole archive: whether it may be unpacked. Answers whether there is a file at `path` in it.
///
/// # Errors
/// See [`ArchiveError`].
pub fn inspect(archive: File, path: &str) -> Result<bool, ArchiveError> {
    let mut found = false;
    walk(archive, LIMITS, |entry, _| {
        found |= entry.kind == Kind::File && entry.path == path;
        Ok(())
    })?;
    Ok(found)
}

/// Packs a folder, but for what every build makes anew; links are followed. The same files make the same archive, whatever their times.
///
/// # Errors
/// What cannot be read, or more than [`LIMITS`] allows.
pub fn pack(folder: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut packing = Packing { zip: ZipArchiveWriter::new(&mut bytes), entries: 0, bytes: 0 };
    packing.folder(folder, "", 0)?;
    packing.zip.finish().map_err(io::Error::other)?;
    Ok(bytes)
}

struct Packing<'a> {
    zip: ZipArchiveWriter<&'a mut Vec<u8>>,
    entries: u64,
    bytes: u64,
}

impl Packing<'_> {
    fn folder(&mut self, folder: &Path, below: &str, depth: usize) -> io::Result<()> {
        if depth >= LIMITS.depth {
            return Err(io::Error::other(format!("{} lies too deep, or links to what it lies in", folder.display())));
        }
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name =
                entry.file_name().into_string().map_err(|name| io::Error::other(format!("{name:?} is not UTF-8")))?;
            if LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            let name = format!("{below}{name}");
            let about =
                fs::metadata(&path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
            if about.is_dir() {
                self.folder(&path, &format!("{name}/"), depth + 1)?;
            } else if about.is_file() {
                self.file(&path, &name, &about)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: &str, about: &fs::Metadata) -> io::Result<()> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(about.len());
        if self.entries > LIMITS.entries || self.bytes > LIMITS.bytes {
            let message = format!("more than {} files or {} bytes", LIMITS.entries, LIMITS.bytes);
            return Err(io::Error::other(message));
        }
        let mode = if about.permissions().mode() & 0o100 != 0 { 0o100_755 } else { 0o100_644 };
        let entry = self.zip.new_file(EntryPath::verbatim(name.as_bytes()));
        let started = entry.compression_method(CompressionMethod::DEFLATE).unix_permissions(mode).start();
        let (mut entry, config) = started.map_err(io::Error::other)?;
        let mut writer = config.wrap(DeflateEncoder::new(&mut entry, Compression::default()));
        io::copy(&mut File::open(path)?, &mut writer)?;
        writer.flush()?;
        let (encoder, descriptor) = writer.finish().map_err(io::Error::other)?;
        encoder.finish()?;
        entry.finish(descriptor).map_err(io::Error::other)?;
        Ok(())
    }
}
