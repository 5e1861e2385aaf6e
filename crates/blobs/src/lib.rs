//! Stored bytes outside of the database, and their checks before they are stored.
//!
//! [`LocalBlobs`] stores blobs in a directory of this machine, [`Inspector`] checks uploaded archives of extensions.
//! Both hold a few hundred KiB of a stream in memory, whatever its length.

mod inspect;
mod local;

pub use inspect::Inspector;
pub use local::{BlobSetupError, LocalBlobs};
