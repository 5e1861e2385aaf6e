//! Files: the words of `/v1/fs/…`. Every operation is a `POST`; paths are absolute.

use serde::{Deserialize, Serialize};

/// [`Path`] → lines of JSON, an array of [`Entry`] each, sorted by the bytes of their names over all lines.
pub const LIST: &str = "/v1/fs/list";
/// [`Path`] → [`Entry`].
pub const INFO: &str = "/v1/fs/info";
/// [`Path`] → the bytes of a file.
pub const READ: &str = "/v1/fs/read";
/// [`Path`] → a ZIP archive of a directory.
pub const ZIP: &str = "/v1/fs/zip";
/// [`Write`] in the head, the bytes of the file as the body.
pub const WRITE: &str = "/v1/fs/write";
/// Several files, as frames: see [`Frame`]. All of them or none.
pub const UPLOAD: &str = "/v1/fs/upload";
/// [`Path`] of a directory in the head, a ZIP archive as the body. All of it or nothing.
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
/// [`WatchId`] → lines of JSON, a [`WatchLine`] each, from the start of the watch on. A later reader takes over from an earlier one.
pub const WATCH_EVENTS: &str = "/v1/fs/watch_events";
/// [`WatchId`].
pub const UNWATCH: &str = "/v1/fs/unwatch";

/// Watches that a session may have at once.
pub const MAX_WATCHES: usize = 16;
/// Longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// Longest content of a [`Frame`], in bytes.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// One path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Absolute.
    pub path: String,
}

/// What stands in a directory, or what a path leads to. Links are not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The last part of the path. What is no UTF-8 is replaced.
    pub name: String,
    /// The type and the permissions as `st_mode` holds them.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// When the content changed last: seconds since 1970.
    pub modified_seconds: i64,
    /// And nanoseconds.
    pub modified_nanos: u32,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Where. The directory must be there.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
}

/// A directory to make, with those above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeDirectory {
    /// Where.
    pub path: String,
    /// Its permissions, if it is made.
    pub mode: u32,
}

/// Something to move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// What.
    pub source: String,
    /// Where nothing may be yet.
    pub destination: String,
}

/// Permissions to set; a link is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// Of what.
    pub path: String,
    /// Which.
    pub mode: u32,
    /// A name or a number.
    #[serde(default)]
    pub owner: Option<String>,
    /// A name or a number.
    #[serde(default)]
    pub group: Option<String>,
}

/// A directory to watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Which.
    pub path: String,
    /// With those below it, also those that are made later.
    pub recursive: bool,
}

/// Names a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchId {
    /// Which.
    pub watch_id: String,
}

/// Something happened in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What.
    pub kind: ChangeKind,
    /// Where, absolute.
    pub path: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WatchLine {
    /// Something happened.
    Change(Change),
    /// The last word, unless it was stopped: why the watch has ended.
    Ended {
        /// For people.
        ended: String,
    },
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Something came to be at the path, or was moved there.
    Create,
    /// The content changed.
    Write,
    /// It is gone.
    Delete,
    /// It was moved away from the path.
    Rename,
}

/// A part of an upload of several files: a byte, the length of the content in four bytes (big endian), the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A file begins; the content is its path.
    File,
    /// Bytes of the file.
    Data,
    /// All files have come. Without it nothing is done.
    End,
}

impl Frame {
    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::File => b'F',
            Self::Data => b'D',
            Self::End => b'E',
        }
    }

    /// What a byte stands for.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'F' => Some(Self::File),
            b'D' => Some(Self::Data),
            b'E' => Some(Self::End),
            _ => None,
        }
    }

    /// The head of a frame with that much content, which is at most [`MAX_FRAME_BYTES`].
    #[must_use]
    pub fn head(self, length: usize) -> [u8; 5] {
        let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        [self.byte(), a, b, c, d]
    }
}
