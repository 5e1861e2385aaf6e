//! Credential providers: stores outside that know logins, asked when one is needed. An organization's, not a project's.
//!
//! What is kept here is how a store is reached, and which items it has. The secrets of an item are asked for anew each time that
//! they are to be typed, and kept nowhere.

mod external;
mod input;
mod lookup;
mod model;
mod one_time;
mod ports;
mod service;

pub use input::{ProviderRequest, ProviderUpdateRequest};
pub use lookup::{FindError, FoundLogin, Lookup};
pub use model::{CredentialProvider, ProviderChange, ProviderItem, ProviderPlace, ProviderType, ProviderVault};
pub use one_time::OneTimeSecret;
pub use ports::{
    CredentialProviderRepository, CredentialStore, ItemSecrets, OneTime, OpenProvider, ProviderDeleted, ProviderFault,
    ProviderStored, ProviderUpdated, StorePlace,
};
#[cfg(feature = "mocks")]
pub use ports::{MockCredentialProviderRepository, MockCredentialStore};
pub use service::{CredentialProviders, ProviderDeps, ProviderError, ProviderSettings, ProviderTest};
