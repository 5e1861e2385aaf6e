//! The files in a session's sandbox.

mod model;
mod ports;
mod service;

pub use model::MAX_PRINCIPAL;
pub use model::{
    AbsolutePath, Change, ChangeKind, DOWNLOADS, Entry, FileMode, MAX_PATH_BYTES, NewDirectory, NewMove,
    NewPermissions, NewWatch, Upload, WatchId,
};
#[cfg(feature = "mocks")]
pub use ports::MockFileMachine;
pub use ports::{Changes, Entries, FileContent, FileMachine, Uploads};
pub use service::{Archive, Directory, Files};
