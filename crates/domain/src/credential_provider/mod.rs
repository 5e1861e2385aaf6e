//! Credential providers: external vaults that hold logins. They belong to an organization, not to a project.
//!
//! Casement stores the location of a vault, and caches the list of its items. The secrets of an item are read again
//! each time they are typed, and are never stored.

mod external;
mod input;
mod lookup;
mod model;
mod ports;
mod service;

pub use input::{MAX_TOKEN, MAX_TTL_SECONDS, MAX_URL};
pub use input::{ProviderRequest, ProviderUpdateRequest};
pub use lookup::{FindError, FoundLogin, Lookup};
pub use model::{
    CredentialProvider, ONEPASSWORD, ProviderChange, ProviderItem, ProviderPlace, ProviderType, ProviderVault,
};
pub use ports::{
    CredentialProviderRepository, CredentialStore, ItemSecrets, OneTime, OpenProvider, ProviderDeleted, ProviderFault,
    ProviderStored, ProviderUpdated, StorePlace,
};
#[cfg(feature = "mocks")]
pub use ports::{MockCredentialProviderRepository, MockCredentialStore};
pub use service::{CredentialProviders, ProviderDeps, ProviderError, ProviderSettings, ProviderTest};
