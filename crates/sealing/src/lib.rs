//! Encryption at rest with the master keys of an installation.
//!
//! [`MasterKeys`] seals short values, [`SealedStreams`] seals content that does not fit into memory. Both bind what they seal to its
//! place, so that a sealed value that is moved to another row does not open.

mod master_keys;
pub mod private_file;
mod stream;

pub use master_keys::{MasterKeyError, MasterKeys};
pub use stream::SealedStreams;
