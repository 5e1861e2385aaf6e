//! Storage budgets: the bounds of stored telemetry and of the logs of builds and invocations.

use std::sync::Arc;

use async_trait::async_trait;

use crate::ids::NodeId;
use crate::store_error::StoreError;
use crate::text_enum::text_enum;

/// The bytes that a stored event or line takes in addition to its text, for its row and its index entries.
pub const ROW_BYTES: u64 = 128;

/// The maximum of stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageBudgets {
    /// The budget of the telemetry of one session.
    pub session: u64,
    /// The budget of one project: the telemetry of its sessions and the logs of its builds and invocations.
    pub project: u64,
    /// The budget of all projects together, for the data that one node has stored.
    pub node: u64,
}

impl StorageBudgets {
    /// No bounds.
    pub const UNBOUNDED: Self = Self { session: u64::MAX, project: u64::MAX, node: u64::MAX };
}

text_enum! {
    /// The limit that prevents storing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum StorageLimit {
        /// The budget of the session.
        Session => "session",
        /// The budget of the project.
        Project => "project",
        /// The budget of the node.
        Node => "node",
        /// The disk of the node is nearly full.
        Disk => "disk",
    }
}

impl StorageLimit {
    /// Returns a description for people.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Session => "the session's storage is used up",
            Self::Project => "the project's storage is used up",
            Self::Node => "the storage of this node is used up",
            Self::Disk => "the disk of this node is nearly full",
        }
    }
}

/// The port to the free space of the node's disk.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait DiskSpace: Send + Sync {
    /// Returns whether less than the reserve is free.
    fn is_low(&self) -> bool;
}

/// A disk that is never full, for nodes without a check of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlimitedDisk;

impl DiskSpace for UnlimitedDisk {
    fn is_low(&self) -> bool {
        false
    }
}

/// The port to the used storage.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait StorageUsage: Send + Sync {
    /// Returns the bytes of the stored telemetry and logs that this node has written.
    async fn of_node(&self) -> Result<u64, StoreError>;
}

/// The bounds of a store of this node.
#[derive(Clone)]
pub struct StorageBounds {
    /// The node, whose budget is [`StorageBudgets::node`].
    pub node: NodeId,
    /// The budgets.
    pub budgets: StorageBudgets,
    /// The free space of the disk.
    pub disk: Arc<dyn DiskSpace>,
}

impl std::fmt::Debug for StorageBounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageBounds")
            .field("node", &self.node)
            .field("budgets", &self.budgets)
            .finish_non_exhaustive()
    }
}

impl StorageBounds {
    /// Creates bounds that allow everything.
    #[must_use]
    pub fn unbounded(node: NodeId) -> Self {
        Self { node, budgets: StorageBudgets::UNBOUNDED, disk: Arc::new(UnlimitedDisk) }
    }

    /// Returns the remaining bytes after the used bytes of a project and of this node.
    #[must_use]
    pub fn room(&self, project_used: u64, node_used: u64) -> StorageRoom {
        StorageRoom {
            session: u64::MAX,
            project: self.budgets.project.saturating_sub(project_used),
            node: self.budgets.node.saturating_sub(node_used),
            is_disk_low: self.disk.is_low(),
        }
    }
}

/// The bytes that may still be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageRoom {
    /// The remaining bytes of the session; [`u64::MAX`] for data of no session.
    pub session: u64,
    /// The remaining bytes of the project.
    pub project: u64,
    /// The remaining bytes of the node.
    pub node: u64,
    /// Whether the disk is nearly full.
    pub is_disk_low: bool,
}

impl StorageRoom {
    /// Creates unlimited room.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self { session: u64::MAX, project: u64::MAX, node: u64::MAX, is_disk_low: false }
    }

    /// Reserves bytes.
    ///
    /// # Errors
    /// The narrowest limit that would be exceeded; nothing is reserved then.
    pub fn take(&mut self, bytes: u64) -> Result<(), StorageLimit> {
        if self.is_disk_low {
            return Err(StorageLimit::Disk);
        }
        for (left, limit) in [
            (self.session, StorageLimit::Session),
            (self.project, StorageLimit::Project),
            (self.node, StorageLimit::Node),
        ] {
            if bytes > left {
                return Err(limit);
            }
        }
        self.spend(bytes);
        Ok(())
    }

    /// Subtracts bytes that are stored in any case, down to zero.
    pub fn spend(&mut self, bytes: u64) {
        for left in [&mut self.session, &mut self.project, &mut self.node] {
            if *left != u64::MAX {
                *left = left.saturating_sub(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: StorageRoom = StorageRoom { session: 100, project: 200, node: 300, is_disk_low: false };

    #[test]
    fn the_narrowest_limit_refuses_and_takes_nothing() {
        for (room, limit) in [
            (ROOM, StorageLimit::Session),
            (StorageRoom { session: 1000, ..ROOM }, StorageLimit::Project),
            (StorageRoom { session: 1000, project: 1000, ..ROOM }, StorageLimit::Node),
            (StorageRoom { session: 1000, project: 1000, node: 1000, is_disk_low: true }, StorageLimit::Disk),
        ] {
            let mut left = room;
            assert_eq!(left.take(301), Err(limit));
            assert_eq!(left, room);
        }
    }

    #[test]
    fn what_is_taken_is_gone_from_all_of_them() {
        let mut room = ROOM;
        assert_eq!(room.take(100), Ok(()));
        assert_eq!(room, StorageRoom { session: 0, project: 100, node: 200, is_disk_low: false });
        assert_eq!(room.take(1), Err(StorageLimit::Session));
        room.spend(150);
        assert_eq!((room.project, room.node), (0, 50));
    }

    #[test]
    fn without_a_bound_there_is_always_room() {
        let mut room = StorageRoom::unbounded();
        assert_eq!(room.take(u64::MAX - 1), Ok(()));
        assert_eq!(room.take(u64::MAX - 1), Ok(()));
    }
}
