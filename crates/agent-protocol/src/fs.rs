//! Files: `/v1/fs/…`. Every operation is a `POST`; paths are absolute. In paths and names, each byte that is not UTF-8 is a
//! character of U+EF80 to U+EFFF.

use serde::{Deserialize, Serialize};

/// [`Path`] → lines of JSON, each an array of [`Entry`], sorted by the bytes of their names across all lines.
pub const LIST: &str = "/v1/fs/list";
/// [`Path`] → [`Entry`].
pub const INFO: &str = "/v1/fs/info";
/// [`Path`] → the bytes of a file.
pub const READ: &str = "/v1/fs/read";
/// [`Path`] → a ZIP archive of a directory.
pub const ZIP: &str = "/v1/fs/zip";
/// [`Write`] in the head, the bytes of the file as the body.
pub const WRITE: &str = "/v1/fs/write";
/// Several files, as frames: see [`Frame`]. All of them or none are written.
pub const UPLOAD: &str = "/v1/fs/upload";
/// [`Path`] of a directory in the head, a ZIP archive as the body. All of it or nothing is written.
pub const UNZIP: &str = "/v1/fs/unzip";
/// [`MakeDirectory`].
pub const MAKE_DIRECTORY: &str = "/v1/fs/make_directory";
/// [`Path`].
pub const DELETE_DIRECTORY: &str = "/v1/fs/delete_directory";
/// [`Path`].
pub const DELETE_FILE: &str = "/v1/fs/delete_file";
/// [`Move`].
pub const MOVE: &str = "/v1/fs/move";
/// [`Permissions`].
pub const PERMISSIONS: &str = "/v1/fs/permissions";
/// [`Watch`] → [`WatchId`].
pub const WATCH: &str = "/v1/fs/watch";
/// [`WatchId`] → lines of JSON, a [`WatchLine`] each, from the start of the watch. A later reader replaces an earlier
/// one.
pub const WATCH_EVENTS: &str = "/v1/fs/watch_events";
/// [`WatchId`].
pub const UNWATCH: &str = "/v1/fs/unwatch";

/// The maximum number of watches of a session.
pub const MAX_WATCHES: usize = 16;
/// The longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// The longest content of a [`Frame`], in bytes.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// A path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// The absolute path.
    pub path: String,
}

/// A directory entry, or the target of a path. Links are not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The last part of the path.
    pub name: String,
    /// The type and the permissions, as in `st_mode`.
    pub mode: u32,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last content change: seconds since 1970.
    pub modified_seconds: i64,
    /// The nanoseconds of that time.
    pub modified_nanos: u32,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Its path. The directory must exist.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
}

/// A directory to create, with its parents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeDirectory {
    /// Its path.
    pub path: String,
    /// Its permissions, if it is created.
    pub mode: u32,
}

/// A move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The source.
    pub source: String,
    /// The destination, which must not exist.
    pub destination: String,
}

/// Permissions to set; links are followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// The path.
    pub path: String,
    /// The permissions.
    pub mode: u32,
    /// The owner: a name or a number.
    #[serde(default)]
    pub owner: Option<String>,
    /// The group: a name or a number.
    #[serde(default)]
    pub group: Option<String>,
}

/// A directory to watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The path.
    pub path: String,
    /// Includes directories below it, also new ones.
    pub recursive: bool,
}

/// Identifies a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchId {
    /// The id.
    pub watch_id: String,
}

/// A change in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The kind.
    pub kind: ChangeKind,
    /// The absolute path.
    pub path: String,
    /// True if the path is a directory.
    pub is_dir: bool,
}

/// A line of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WatchLine {
    /// A change.
    Change(Change),
    /// The end of the watch, unless it was stopped.
    Ended {
        /// The reason, for people.
        ended: String,
    },
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The path was created, or moved there.
    Create,
    /// The content changed.
    Write,
    /// The path was deleted.
    Delete,
    /// The path was moved away.
    Rename,
}

/// A frame of an upload of several files: a type byte, the length of the content in four bytes (big endian), the
/// content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// The beginning of a file; the content is its path.
    File,
    /// Bytes of the file.
    Data,
    /// The end of the upload, without which nothing is written.
    End,
}

impl Frame {
    /// Returns the type byte.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::File => b'F',
            Self::Data => b'D',
            Self::End => b'E',
        }
    }

    /// Returns the frame of a type byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'F' => Some(Self::File),
            b'D' => Some(Self::Data),
            b'E' => Some(Self::End),
            _ => None,
        }
    }

    /// Returns the head of a frame with that length of content, at most [`MAX_FRAME_BYTES`].
    #[must_use]
    pub fn head(self, length: usize) -> [u8; 5] {
        let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        [self.byte(), a, b, c, d]
    }
}
