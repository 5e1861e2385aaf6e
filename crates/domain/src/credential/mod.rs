//! Credentials: stored logins for sites. Their secrets are sealed, and are opened only to be typed.

mod input;
mod model;
mod ports;
mod service;
mod site;
mod totp;

pub(crate) use input::parse_domain;
pub use input::{CredentialUpdate, NewCredential};
pub use input::{MAX_KEY, MAX_PROVIDER, MAX_VALUE};
pub use model::{Credential, CredentialChange, CredentialSecret, MAX_VALUES, PlainSecrets, SealedSecrets};
#[cfg(feature = "mocks")]
pub use ports::MockCredentialRepository;
pub use ports::{CredentialFilter, CredentialRepository, CredentialStored, CredentialUpdated, SealedSecret};
pub use service::{CredentialDeps, CredentialError, Credentials, NoTotpSecret};
pub use site::{Route, Sites};
pub use totp::MAX_BYTES as MAX_TOTP_SECRET;
pub use totp::{TotpCode, TotpSecret};
