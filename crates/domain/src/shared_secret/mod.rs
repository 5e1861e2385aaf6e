//! The secret that all nodes of a store share. Keys that every node must have are derived from it.
//!
//! The store has it sealed under a master key. This also proves that a node has a master key of the other nodes.

mod model;
mod ports;
mod service;

pub use model::{KeyPurpose, SharedSecret};
#[cfg(feature = "mocks")]
pub use ports::MockSharedSecretRepository;
pub use ports::SharedSecretRepository;
pub use service::{SharedSecretError, SharedSecrets};
