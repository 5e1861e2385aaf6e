//! Encryption at rest with the master keys of an installation.
//!
//! [`MasterKeys`] seals short values, [`SealedStreams`] seals content that does not fit into memory. Both bind a sealed
//! value to its place, so that it cannot be opened after it was moved to another row. [`Passphrase`] seals what leaves
//! the installation.

mod master_keys;
mod passphrase;
pub mod private_file;
mod stream;

pub use master_keys::{MasterKeyError, MasterKeys, lock_key_file};
pub use passphrase::{Passphrase, PassphraseError};
pub use stream::SealedStreams;
