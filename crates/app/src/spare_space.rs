//! Space on the disk of the data directory that is kept for a start. A server that was killed on a full disk could not start
//! again: the private database, for example, writes files before it accepts connections.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags};
use tracing::{debug, info, warn};

use crate::disk::Disk;

/// The bytes of one part, with which a server starts and then reports that its disk is full.
const PART_BYTES: u64 = 32 << 20;
/// The number of parts: so many starts in a row find room.
const PARTS: u32 = 2;
/// The free space with which a start gives up no part.
const ENOUGH_BYTES: u64 = 24 << 20;
/// The largest part, as a fraction of the disk.
const MAX_FRACTION: u64 = 12;

/// The files that occupy the space. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct SpareSpace(Arc<Path>);

fn part_bytes(disk: Disk) -> u64 {
    PART_BYTES.min(disk.size / MAX_FRACTION)
}

impl SpareSpace {
    /// The space in this data directory.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self(data_dir.into())
    }

    fn parts(&self) -> impl Iterator<Item = PathBuf> {
        (1..=PARTS).map(|number| self.0.join(format!("spare-space.{number}")))
    }

    /// Gives up parts until a server can start. Called before anything is written.
    pub(crate) fn make_room(&self) {
        for part in self.parts() {
            let disk = Disk::of(&self.0);
            if disk.is_some_and(|disk| disk.free >= ENOUGH_BYTES.min(part_bytes(disk))) {
                return;
            }
            if fs::remove_file(&part).is_ok() {
                warn!(
                    data_dir = %self.0.display(),
                    "the disk is full: starting with space that was kept for this; make room before the next start"
                );
            }
        }
    }

    /// Occupies the parts that are missing, if `spare_bytes` more stay free.
    pub(crate) fn keep(&self, spare_bytes: u64) {
        for part in self.parts().filter(|part| !part.exists()) {
            let Some(disk) = Disk::of(&self.0) else { return };
            if disk.free < part_bytes(disk).saturating_add(spare_bytes) {
                return;
            }
            match occupy(&part, part_bytes(disk)) {
                Ok(()) => info!(file = %part.display(), "space on the disk is kept for a start on a full one"),
                Err(error) => {
                    debug!(%error, file = %part.display(), "cannot keep space on the disk for a start on a full one");
                    let _ = fs::remove_file(&part);
                    return;
                }
            }
        }
    }
}

/// Creates a file to which the disk has given all of its space.
fn occupy(path: &Path, bytes: u64) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(path)?;
    Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts_in(folder: &Path) -> usize {
        fs::read_dir(folder).expect("a folder").count()
    }

    #[test]
    fn space_is_occupied_only_where_there_is_enough_and_freed_only_on_a_full_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let space = SpareSpace::new(folder.path());
        space.keep(u64::MAX);
        assert_eq!(parts_in(folder.path()), 0, "the disk has not so much space");
        space.keep(0);
        let occupied = parts_in(folder.path());
        assert_eq!(occupied, 2, "this test needs 64 MiB of space");
        space.keep(0);
        space.make_room();
        assert_eq!(parts_in(folder.path()), occupied, "the disk is not full");
    }
}
