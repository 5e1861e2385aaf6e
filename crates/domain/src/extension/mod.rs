//! Browser extensions: stored in a project, loaded into sessions at their start or while they run.

mod model;
mod ports;
mod service;
mod web_store;

pub use model::{Extension, MAX_EXTENSION_BYTES, MAX_LOADED_AT_ONCE, references};
pub use ports::{
    ExtensionArchives, ExtensionDeleted, ExtensionFilter, ExtensionMachine, ExtensionRepository, ExtensionSource,
    ExtensionStored, InspectedArchive, NoExtensions, WebStore,
};
#[cfg(feature = "mocks")]
pub use ports::{
    MockExtensionArchives, MockExtensionMachine, MockExtensionRepository, MockExtensionSource, MockWebStore,
};
pub(crate) use service::resolve;
pub use service::{ExtensionDeps, ExtensionError, ExtensionFiles, Extensions, Upload};
pub use web_store::{Platform, StoreItem, crx_payload};
