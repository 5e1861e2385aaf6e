//! Resources, rules, use cases and ports of Casement; no I/O.
//!
//! Services with adapters of their own embed this crate. Every resource has a folder with its types (`model`), its
//! state machine (`transitions`, if it has states), the traits that adapters implement (`ports`) and its use cases
//! (`service`). Time, randomness and identifiers come through ports as well, so a test can set any time.
//!
//! Invariants:
//! - No module accesses a file, a socket, a process, a clock or a random source.
//! - No module depends on HTTP, SQL or the protocol of a browser.
//! - No type derives a wire format; each adapter defines its own.
//! - A status changes only by a transition, and is stored only if the row still has the state before the transition.

pub mod access;
pub mod api_key;
pub mod audit;
pub mod audit_destination;
pub mod auth_connection;
pub mod backoff;
pub mod blob;
pub mod browser;
pub mod clock;
pub mod computer;
pub mod credential;
pub mod credential_provider;
pub mod curl;
pub mod deleted_resource;
pub mod deployment;
pub mod engine;
pub mod error;
pub mod extension;
pub mod field;
pub mod fs;
pub mod ids;
pub mod invocation;
pub mod live_view;
pub mod login_page;
mod masking;
pub mod misspelling;
pub mod name;
pub mod network;
pub mod node;
pub mod not_supported;
pub mod organization;
pub mod page;
pub mod pattern;
pub mod permission;
pub mod pool;
pub mod process;
pub mod profile;
pub mod project;
pub mod proxy;
pub mod reference;
pub mod replay;
pub mod script;
pub mod sealing;
pub mod session;
pub mod session_log;
pub mod session_operation;
pub mod shared_secret;
pub mod sign_in;
pub mod storage;
pub mod store_error;
pub mod telemetry;
pub mod telemetry_destination;
#[cfg(any(test, feature = "mocks"))]
pub mod testing;
mod text_enum;
pub mod untrusted_json;
pub mod web_url;
pub mod webmcp;

pub use clock::{Clock, Entropy, FirstSeen, IdSource, MonotonicClock, MonotonicTime};
pub use error::{InUse, NameTaken, NotFound, UseCaseError};
pub use ids::{
    ApiKeyId, AppVersionId, AuditDestinationId, AuditRecordId, AuthConnectionId, AuthFlowId, BadId, BlobStoreId,
    BrowserId, CredentialId, CredentialProviderId, DatabaseId, DeploymentId, ExtensionId, InvocationId, NodeId,
    NodeRunId, OrganizationId, PoolId, ProcessId, ProfileId, ProfileVersionId, ProjectId, ProxyId, ReplayId, SessionId,
    TelemetryDestinationId, TicketId, UserId,
};
pub use masking::mask_secrets;
pub use store_error::{Replaced, StoreError};
