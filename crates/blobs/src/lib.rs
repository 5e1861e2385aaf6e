//! Bytes that no database should hold: where they lie, and what is looked at before they do.
//!
//! [`LocalBlobs`] keeps them in a directory of this machine, [`Inspector`] looks through archives of extensions that strangers send.
//! Both hold a few hundred KiB of a stream at a time, however long it is.

mod inspect;
mod local;

pub use inspect::Inspector;
pub use local::{BlobSetupError, LocalBlobs};
