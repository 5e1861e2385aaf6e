//! Sessions: each is the use of one browser by one caller.

mod activity;
mod input;
mod model;
mod ports;
mod service;
mod transitions;

pub use crate::not_supported::NotSupported;
pub use activity::{Activity, ActivityGuard};
pub use input::{MAX_CAPABILITIES, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS};
pub use input::{
    NewSession, Refusal, SessionRequest, SessionUpdate, SessionUpdateRequest, Tags, ViewportRequest, shape,
    timeout_seconds,
};
pub(crate) use input::{common_fields, is_headless_by_default};
pub use model::{EndReason, IdOrName, LoginRuns, PoolRef, Session, SessionState, StatusFilter};
pub use ports::{CleanupWake, Connections, Created, PoolWake, SessionFilter, SessionRepository};
#[cfg(feature = "mocks")]
pub use ports::{MockCleanupWake, MockConnections, MockPoolWake, MockSessionRepository};
pub use service::{
    CreateSessionError, EndSessionError, SessionDeps, Sessions, StartFailed, UpdateSessionError, UseSessionError,
};
pub(crate) use service::{check_start_url, hand_out};
pub use transitions::{SessionEvent, SessionRefused};

/// The time after a session's end in which saving its data is retried while the storage fails.
pub(crate) const SAVE_RETRY_TIMEOUT: time::Duration = time::Duration::minutes(10);
