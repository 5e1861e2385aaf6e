//! The API key: the credential that callers show.

mod model;
mod ports;
mod secret;
mod service;

pub use model::{ApiKey, KeyStatus};
#[cfg(feature = "mocks")]
pub use ports::MockApiKeyRepository;
pub use ports::{ApiKeyRepository, KeyWithHash};
pub use secret::{KeySecret, SecretHash, masked};
pub use service::{ApiKeys, AuthenticateError, Caller, CreateKey, CreateKeyError, CreatedKey, RevokeKeyError};
