//! Permissions: what a credential allows in its scope.
//!
//! The policy of an API key is a list of statements, each of which allows an [`Action`] on a resource; whatever no
//! statement allows is refused. A key without a policy allows everything in its scope.

mod action;
mod policy;
mod resource;

pub use action::{Action, Kind, Level, Verb};
pub use policy::{InsufficientScope, Permissions, Policy, PolicyRequest, Statement, StatementRequest};
pub use resource::{MAX_LENGTH as MAX_RESOURCE, Target, Which};
