//! Packs the program and its dependencies as an archive.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use crate::artifact::LIMITS;

/// Packs every directory, file and link below `root`, with modification times, because compiled Python identifies its
/// source by them.
pub(super) fn pack(root: &Path, to: impl Write) -> io::Result<()> {
    let mut packing = Packing { tar: Builder::new(zstd::Encoder::new(to, 1)?), entries: 0, bytes: 0 };
    packing.directory(root, Path::new(""))?;
    packing.tar.into_inner()?.finish()?.flush()
}

struct Packing<W: Write> {
    tar: Builder<W>,
    entries: u64,
    bytes: u64,
}

impl<W: Write> Packing<W> {
    fn directory(&mut self, on_disk: &Path, name: &Path) -> io::Result<()> {
        let mut entries = fs::read_dir(on_disk)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), name.join(entry.file_name()));
            let about = fs::symlink_metadata(&path)?;
            self.entries += 1;
            self.bytes = self.bytes.saturating_add(about.len());
            if self.entries > LIMITS.entries || self.bytes > LIMITS.bytes {
                return Err(io::Error::other(format!(
                    "with its dependencies it has more than {} files or {} bytes",
                    LIMITS.entries, LIMITS.bytes
                )));
            }
            let mut header = Header::new_gnu();
            header.set_mode(if about.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 });
            header.set_mtime(u64::try_from(about.mtime()).unwrap_or_default());
            if about.is_symlink() {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                self.tar.append_link(&mut header, &name, fs::read_link(&path)?)?;
            } else if about.is_dir() {
                header.set_entry_type(EntryType::Directory);
                header.set_size(0);
                self.tar.append_data(&mut header, &name, io::empty())?;
                self.directory(&path, &name)?;
            } else if about.is_file() {
                header.set_entry_type(EntryType::Regular);
                header.set_size(about.len());
                self.tar.append_data(&mut header, &name, File::open(&path)?)?;
            }
        }
        Ok(())
    }
}
