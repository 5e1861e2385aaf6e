//! Stores that know logins and are not ours, behind the domain's port.
//!
//! Each kind is one module that implements [`CredentialStore`]: [`Connect`] asks a 1Password Connect server, [`Keepass`] reads a
//! KeePass database. [`Stores`] picks the one that a provider is of, and remembers for all of them: lists of items for as long as the
//! provider says, and failures, so that a store that is down is not asked again and again. Secrets are never remembered.
//!
//! What a store answers is taken for hostile: it is bounded in size, number and time, nothing of it reaches an error, and what it
//! names is never an address to go to.
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
