//! The record of a file or directory.

use casement_domain::fs::Entry;
use serde::Serialize;

use crate::{answer::Moment, schema::ToSchema};

/// A file or directory. Links are not followed: the `mode` of a link begins with `l`, and its `is_dir` is false.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileInfo)]
pub(crate) struct FileInfo {
    name: String,
    /// The absolute path.
    path: String,
    /// The size in bytes; 0 for a directory.
    size_bytes: u64,
    is_dir: bool,
    #[schema(value_type = String, format = DateTime)]
    mod_time: Moment,
    /// The mode in the format of `ls`: `drwxr-xr-x`.
    mode: String,
}

impl FileInfo {
    pub(crate) fn new(entry: Entry, path: String) -> Self {
        Self {
            path,
            size_bytes: entry.size_bytes,
            is_dir: entry.is_dir(),
            mod_time: Moment(entry.modified_at),
            mode: entry.mode_text(),
            name: entry.name,
        }
    }
}

/// Bytes of any kind.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it is used in the OpenAPI document only; the bytes are sent unchanged")]
pub(crate) struct AnyBytes(Vec<u8>);
