//! Credentials: stored logins for sites. Their secrets are sealed, and are opened only to be typed.

mod input;
mod model;
mod ports;
mod service;
mod site;
mod totp;
mod totp_text;

pub(crate) use input::parse_domain;
pub use input::{
    CredentialUpdate, DOMAIN_PATTERN, MAX_KEY, MAX_PROVIDER, MAX_VALUE, NewCredential, PROVIDER_PATTERN, TOTP_PATTERN,
    TotpRequest,
};
pub use model::{Credential, CredentialChange, CredentialSecret, MAX_VALUES, PlainSecrets, SealedSecrets, SealedTotp};
#[cfg(feature = "mocks")]
pub use ports::MockCredentialRepository;
pub use ports::{CredentialFilter, CredentialRepository, CredentialStored, CredentialUpdated, SealedSecret};
pub use service::{CredentialDeps, CredentialError, Credentials, NoTotpSecret};
pub use site::{Route, Sites};
pub use totp::{TotpAlgorithm, TotpCode, TotpParameters, TotpSecret};
pub use totp_text::{MAX_DIGITS, MAX_PERIOD_SECONDS, MAX_TEXT as MAX_TOTP_SECRET, MIN_DIGITS, TotpOptions, TotpText};
