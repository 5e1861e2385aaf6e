//! The errors of operations on files.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;

/// The message for a directory with more names than `MAX_NAME_BYTES`.
pub(crate) const TOO_WIDE: &str = "holds more than 8 MiB of names, the most that are kept at once";

/// The field of the request that contained a path or another invalid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Path,
    Source,
    Destination,
    /// The destination of an uploaded file.
    Uploaded,
    /// The directory into which an archive is unpacked.
    Unpacked,
    /// The archive.
    Archive,
    Owner,
    Group,
}

impl Field {
    fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Source => "src_path",
            Self::Destination => "dest_path",
            Self::Uploaded => "files[][dest_path]",
            Self::Unpacked => "dest_path",
            Self::Archive => "zip_file",
            Self::Owner => "owner",
            Self::Group => "group",
        }
    }
}

/// The reason why an operation on files failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Fault {
    code: ErrorCode,
    message: String,
    field: Field,
}

impl Fault {
    pub(crate) fn new(code: ErrorCode, field: Field, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), field }
    }

    /// Creates the fault of one path.
    pub(crate) fn of(code: ErrorCode, field: Field, path: &str, why: impl fmt::Display) -> Self {
        Self::new(code, field, format_args!("{} {why}", shown(path)))
    }

    /// Creates the fault of a path that does not belong to the session's files.
    pub(crate) fn closed(field: Field, path: &str) -> Self {
        Self::of(ErrorCode::PathForbidden, field, path, "does not belong to the session's files")
    }

    /// Creates the fault for an error of the kernel on one path.
    pub(crate) fn io(field: Field, path: &str, error: io::Error) -> Self {
        let (code, why) = match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => (ErrorCode::Missing, "does not exist"),
            Some(Errno::ACCESS | Errno::PERM) => (ErrorCode::PathForbidden, "may not be touched by the session's user"),
            Some(Errno::ROFS) => (ErrorCode::PathForbidden, "is read-only"),
            Some(Errno::BUSY) => (ErrorCode::PathForbidden, "is in use by the system"),
            Some(Errno::EXIST | Errno::NOTEMPTY) => (ErrorCode::Exists, "exists already"),
            Some(Errno::NOTDIR) => {
                (ErrorCode::NotADirectory, "is not a directory, or leads through something that is none")
            }
            Some(Errno::ISDIR) => (ErrorCode::IsADirectory, "is a directory"),
            Some(Errno::NAMETOOLONG) => (ErrorCode::NotAllowed, "is longer than the system takes"),
            Some(Errno::LOOP) => (ErrorCode::NotAllowed, "leads through too many links"),
            Some(Errno::INVAL) => (ErrorCode::NotAllowed, "cannot be used for this"),
            Some(Errno::TOOBIG) => (ErrorCode::TooLarge, TOO_WIDE),
            Some(Errno::NOSPC | Errno::DQUOT) => return Self::full(field, None),
            _ => return Self::of(ErrorCode::Failed, field, path, format_args!("failed: {error}")),
        };
        Self::of(code, field, path, why)
    }

    /// Creates the fault of a full disk, with the number of missing bytes if it is known.
    pub(crate) fn full(field: Field, needed: Option<u64>) -> Self {
        let needed = needed.map(|bytes| format!(": {bytes} more bytes are needed")).unwrap_or_default();
        let message = format!(
            "the session's disk quota is used up{needed}; delete files of the session, or give sessions more with --session-disk"
        );
        Self::new(ErrorCode::DiskFull, field, message)
    }

    /// Creates the fault of a request whose content is incomplete or not valid.
    pub(crate) fn broken(error: impl fmt::Display) -> Self {
        Self::new(ErrorCode::BrokenBody, Field::Path, format_args!("the content ended early: {error}"))
    }

    /// Converts the fault to one of a path where a directory is necessary.
    pub(crate) fn into_no_directory(self, path: &str) -> Self {
        match self.code {
            ErrorCode::Exists => Self::of(ErrorCode::NotADirectory, self.field, path, "is not a directory"),
            _ => self,
        }
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.code == ErrorCode::Missing
    }
}

/// Shortens a path for people.
fn shown(path: &str) -> String {
    const MAX_COUNT: usize = 200;
    match path.char_indices().nth(MAX_COUNT) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::new(fault.code, fault.message).of_field(fault.field.name())
    }
}
