//! Encryption at rest with the master keys of an installation.
//!
//! [`MasterKeys`] seals short values, [`SealedStreams`] seals content that does not fit into memory. Both bind a sealed
//! value to its place, so that it cannot be opened after it was moved to another row.

mod master_keys;
pub mod private_file;
mod stream;

pub use master_keys::{MasterKeyError, MasterKeys};
pub use stream::SealedStreams;
