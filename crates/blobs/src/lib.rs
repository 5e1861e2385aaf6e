//! Stores bytes outside of the database, and checks archives before they are stored.
//!
//! [`LocalBlobs`] stores blobs in a directory of this machine, [`Inspector`] checks uploaded archives of extensions.
//! Both have a few hundred KiB of a stream in memory, whatever its length.

mod inspect;
mod local;

pub use inspect::Inspector;
pub use local::{BlobSetupError, LocalBlobs};
