//! Measures the free space of the data directory's disks. While it is low, data that may be dropped is not stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use casement_domain::storage::DiskSpace;
use metrics::gauge;
use tracing::{info, warn};

use crate::spare_space::SpareSpace;
use crate::store::CLUSTER;

/// The largest reserve, as a fraction of the disk.
const MAX_RESERVE_FRACTION: u64 = 10;

/// The free space with which the private database refuses changes, in bytes: a file grows by blocks of 8 KiB, and several
/// calls write at the same time.
const FULL_BYTES: u64 = 1 << 20;

/// The disks of a data directory. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct DiskWatch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The data directory, and folders in it that may be disks of their own.
    folders: Vec<PathBuf>,
    /// The space for a start on a full disk.
    spare_space: SpareSpace,
    reserve: u64,
    low: AtomicBool,
}

/// The size and free space of a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) free: u64,
    pub(crate) size: u64,
}

impl Disk {
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let stat = rustix::fs::statvfs(folder).ok()?;
        Some(Self { free: stat.f_bavail * stat.f_frsize, size: stat.f_blocks * stat.f_frsize })
    }

    /// Returns the space to keep free.
    fn reserve(self, max: u64) -> u64 {
        max.min(self.size / MAX_RESERVE_FRACTION)
    }

    /// A low disk stays low until a quarter more than the reserve is free, so that the state does not change with every
    /// few bytes.
    fn is_low(self, max: u64, was_low: bool) -> bool {
        let reserve = self.reserve(max);
        self.free < if was_low { reserve + reserve / 4 } else { reserve }
    }
}

impl DiskWatch {
    /// Watches the disks of this data directory, each with `reserve` bytes to keep free.
    pub(crate) fn new(data_dir: &Path, reserve: u64) -> Self {
        let folders = [data_dir.to_owned(), data_dir.join("blobs"), data_dir.join(CLUSTER)].into();
        let spare_space = SpareSpace::new(data_dir);
        let watch = Self(Arc::new(Inner { folders, spare_space, reserve, low: AtomicBool::new(false) }));
        watch.measure();
        watch
    }

    /// Returns whether the private database has no space for changes now. Without one, the result is false.
    pub(crate) fn database_is_full(&self) -> bool {
        let cluster = self.0.folders.last().and_then(|cluster| Disk::of(cluster));
        cluster.is_some_and(|disk| disk.free < FULL_BYTES)
    }

    /// Measures the free space, and updates whether it is below the reserve. Keeps space for a start where it is not.
    pub(crate) fn measure(&self) {
        let Inner { folders, spare_space, reserve, low } = &*self.0;
        let was_low = low.load(Ordering::Relaxed);
        let disks: Vec<Disk> = folders.iter().filter_map(|folder| Disk::of(folder)).collect();
        let is_low = disks.iter().any(|disk| disk.is_low(*reserve, was_low));
        low.store(is_low, Ordering::Relaxed);
        if let Some(free) = disks.iter().map(|disk| disk.free).min() {
            gauge!("casement_disk_free_bytes").set(free as f64);
        }
        gauge!("casement_disk_low").set(f64::from(u8::from(is_low)));
        if !is_low {
            let own = disks.first().map_or(0, |disk| disk.reserve(*reserve));
            spare_space.keep(own + own / 4);
        }
        if is_low && !was_low {
            warn!("the disk is nearly full: telemetry, logs of apps and recordings are not stored");
        } else if was_low && !is_low {
            info!("the disk has free space again: telemetry, logs of apps and recordings are stored");
        }
    }
}

impl DiskSpace for DiskWatch {
    fn is_low(&self) -> bool {
        self.0.low.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_low_below_its_reserve_until_a_quarter_more_is_free() {
        let disk = |free| Disk { free, size: 100_000 };
        assert!(!disk(1_000).is_low(1_000, false));
        assert!(disk(999).is_low(1_000, false));
        assert!(disk(1_249).is_low(1_000, true));
        assert!(!disk(1_250).is_low(1_000, true));
    }

    #[test]
    fn the_reserve_is_at_most_a_tenth_of_the_disk() {
        let disk = Disk { free: 7_000, size: 64_000 };
        assert!(!disk.is_low(1 << 30, false));
        assert!(Disk { free: 6_399, ..disk }.is_low(1 << 30, false));
        assert!(!Disk { free: 0, ..disk }.is_low(0, true), "without a reserve nothing is looked at");
    }
}
