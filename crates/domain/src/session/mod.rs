//! The browser session: one lease of one browser by one caller.

mod activity;
mod input;
mod model;
mod ports;
mod service;
mod transitions;

pub use activity::{Activity, ActivityGuard};
pub use input::{
    CreateSession, NotSupported, Refusal, SessionChanges, SessionRequest, Tags, UpdateSession, ViewportInput, shape,
    timeout_seconds,
};
pub use model::{EndReason, IdOrName, LoginRuns, PoolRef, Session, SessionState, StatusFilter};
pub use ports::{CleanupWake, Connections, Created, PoolWake, SessionFilter, SessionRepository};
#[cfg(feature = "mocks")]
pub use ports::{MockCleanupWake, MockConnections, MockPoolWake, MockSessionRepository};
pub(crate) use service::hand_out;
pub use service::{CreateSessionError, EndSessionError, SessionDeps, Sessions, UpdateSessionError, UseSessionError};
pub use transitions::{SessionEvent, SessionRefused};

/// For how long after a session's end it is tried to keep what it left, if the place where that is kept fails.
pub(crate) const TRIED_FOR: time::Duration = time::Duration::minutes(10);
