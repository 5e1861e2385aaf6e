//! How much is stored of what pages and programs write: telemetry, and the logs of builds and invocations.

use std::sync::Arc;

use async_trait::async_trait;

use crate::ids::NodeId;
use crate::store_error::StoreError;
use crate::text_enum::text_enum;

/// What a stored event or line takes beside its text, in bytes: its row, and its places in indexes.
pub const ROW_BYTES: u64 = 128;

/// The most that is kept at a time, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageBudgets {
    /// Of the telemetry of one session.
    pub session: u64,
    /// Of one project: the telemetry of its sessions and the logs of its builds and invocations.
    pub project: u64,
    /// The same of all projects, as far as this node has stored it.
    pub node: u64,
}

impl StorageBudgets {
    /// No bound at all.
    pub const UNBOUNDED: Self = Self { session: u64::MAX, project: u64::MAX, node: u64::MAX };
}

text_enum! {
    /// Why something is not stored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum StorageLimit {
        /// The session has used up its budget.
        Session => "session",
        /// The project has.
        Project => "project",
        /// The node has.
        Node => "node",
        /// The disk of the node is nearly full.
        Disk => "disk",
    }
}

impl StorageLimit {
    /// What is the matter, for people.
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

/// Whether the disk of the node has room for what can be missed.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait DiskSpace: Send + Sync {
    /// Less is free than the reserve.
    fn is_low(&self) -> bool;
}

/// A disk that is never full: where nobody looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlimitedDisk;

impl DiskSpace for UnlimitedDisk {
    fn is_low(&self) -> bool {
        false
    }
}

/// How much is stored.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait StorageUsage: Send + Sync {
    /// How many bytes of telemetry and logs are kept that this node has stored.
    async fn of_node(&self) -> Result<u64, StoreError>;
}

/// What bounds a store of this node.
#[derive(Clone)]
pub struct StorageBounds {
    /// Whose budget is [`StorageBudgets::node`].
    pub node: NodeId,
    /// How much is kept.
    pub budgets: StorageBudgets,
    /// How the disk is.
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
    /// No bound, on a node.
    #[must_use]
    pub fn unbounded(node: NodeId) -> Self {
        Self { node, budgets: StorageBudgets::UNBOUNDED, disk: Arc::new(UnlimitedDisk) }
    }

    /// What is left when so many bytes are kept of a project, and of this node.
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

/// How many bytes may still be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageRoom {
    /// Of the session; [`u64::MAX`] for what belongs to none.
    pub session: u64,
    /// Of its project.
    pub project: u64,
    /// On the node.
    pub node: u64,
    /// The disk has none.
    pub is_disk_low: bool,
}

impl StorageRoom {
    /// As much as one likes.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self { session: u64::MAX, project: u64::MAX, node: u64::MAX, is_disk_low: false }
    }

    /// Takes so many bytes of it.
    ///
    /// # Errors
    /// The narrowest limit that they would pass; nothing is taken then.
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

    /// Takes so many bytes, or all there are: of what is stored in any case.
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
