//! Auth connections: they keep a profile logged in to a site by means of login flows.
//!
//! A connection holds the settings; a [`Flow`] is a login, an unattended login, or a health check. Each step of a flow
//! is stored, so that its node may be killed at any point.

mod awaited;
mod flow;
mod hosted;
mod input;
mod model;
mod ports;
mod reauth;
mod runner;
mod service;
mod settings;
mod submit;
mod transitions;

pub use awaited::{RequestedChoice, RequestedField};
pub use flow::{
    Flow, FlowError, FlowFailure, FlowKind, FlowRequirement, FlowSettings, FlowStatus, FlowStep, TimelineEvent,
};
pub use hosted::{HandoffError, HostedFlow, PageKey};
pub use input::{ConnectionRequest, CredentialRequest};
pub use input::{MAX_DOMAINS, MAX_TEXT, MAX_URL};
pub use model::{AuthConnection, ConnectionChange, ConnectionStatus, CredentialRef};
pub use ports::{
    AuthConnectionRepository, CollectedCredential, ConnectionDeleted, ConnectionFilter, ConnectionStored,
    ConnectionUpdated, ExternalCredentials, ExternalLogin, ExternalWanted, FlowBegun, FlowChangeNotifier, FlowEnd,
    NoExternalCredentials, OrphanedFlow, ProfileSavePermission, ProviderScope,
};
#[cfg(feature = "mocks")]
pub use ports::{MockAuthConnectionRepository, MockExternalCredentials, MockFlowChangeNotifier};
pub use reauth::{Reauth, ReauthReason};
#[cfg(feature = "mocks")]
pub use runner::MockFlowPictures;
pub use runner::{FlowPictures, FlowRunner, Next, PageEvent, PageEventRefused, PagePhase, Readings, RunnerDeps};
pub use service::{AuthConnectionDeps, AuthConnectionError, AuthConnectionFailure, AuthConnections, StartedLogin};
pub use settings::Settings;
pub use submit::{MAX_VALUE_BYTES, MAX_VALUES};
pub use submit::{Submission, SubmitRequest};
pub use transitions::{FlowEvent, FlowRefused};
