//! API keys: the credentials of programs that call the API.

mod administration;
mod directory;
mod model;
mod ports;
mod secret;
mod service;

pub use administration::{KeyAdministration, KeyError, KeyRefused, NewKeyRequest};
#[cfg(feature = "mocks")]
pub use directory::MockApiKeyDirectory;
pub use directory::{ApiKeyDirectory, KeyEntry, KeyFilter, KeyOrder};
pub use model::{ApiKey, KeyStatus};
#[cfg(feature = "mocks")]
pub use ports::MockApiKeyRepository;
pub use ports::{ApiKeyRepository, KeyWithHash};
pub use secret::{KeySecret, SecretHash, masked};
pub use service::{ApiKeys, AuthenticateError, Caller, CreatedKey, KeyRequest, MAX_DAYS};
