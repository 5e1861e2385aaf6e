//! Entries as they stand on the wire.

use casement_domain::fs::Entry;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::Moment;

/// What is at a path. Links are not followed: of a link, `mode` begins with `l` and `is_dir` is false.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileInfo)]
pub(crate) struct FileInfo {
    name: String,
    /// Absolute.
    path: String,
    /// 0 of a directory.
    size_bytes: u64,
    is_dir: bool,
    #[schema(value_type = String, format = DateTime)]
    mod_time: Moment,
    /// As `ls` writes it: `drwxr-xr-x`.
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
#[expect(dead_code, reason = "it stands in the description only; the bytes are sent as they are")]
pub(crate) struct AnyBytes(Vec<u8>);
