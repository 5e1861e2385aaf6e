//! Invocations: single runs of the actions that deployments register.

mod input;
mod model;
mod ports;
mod repository;
mod runs;
mod service;
mod transitions;

pub use input::{InvocationRequest, MAX_JSON, MAX_NAME, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS};
pub use model::{Invocation, InvocationStatus};
#[cfg(feature = "mocks")]
pub use ports::MockRunner;
pub use ports::{AdoptedCalls, Call, CallLimits, FailedDeployment, RunFailure, RunFault, Runnable, Runner};
#[cfg(feature = "mocks")]
pub use repository::MockInvocationRepository;
pub use repository::{InvocationFilter, InvocationRepository, InvocationStored};
pub use runs::{LeasedInvocation, Runs};
pub(crate) use service::end_all;
pub use service::{AcceptedInvocation, InvocationDeps, InvocationError, InvocationFailure, Invocations};
pub use transitions::{InvocationEvent, InvocationRefused};
