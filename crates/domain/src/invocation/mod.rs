//! Invocations: single runs of the actions that deployments register.

mod ports;

#[cfg(feature = "mocks")]
pub use ports::MockRunner;
pub use ports::{Call, CallLimits, Fallen, RunFailure, RunFault, Runnable, Runner};
