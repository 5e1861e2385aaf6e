//! Adapters for external stores of logins.
//!
//! Each kind is one module that implements [`CredentialStore`]: [`Connect`] requests a 1Password Connect server,
//! [`Keepass`] reads a KeePass database. [`Stores`] selects the store of a provider's kind and caches for all of them:
//! lists of items for the provider's cache time, and failures, so that an unavailable store is not requested all the
//! time. Secrets are never cached.
//!
//! Responses of a store are untrusted: they are bounded in size, number and time, nothing of them reaches an error,
//! and their content is never an address to connect to.
//!
//! [`CredentialStore`]: casement_domain::credential_provider::CredentialStore

mod answers;
mod bounds;
mod connect;
mod keepass;
mod stores;
mod web;

pub use connect::Connect;
pub use keepass::{Keepass, Reader, read_keepass};
pub use stores::Stores;
pub use web::{NoAnswer, Web, WebAnswer};
