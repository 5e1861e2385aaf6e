//! `/invocations`: runs of the actions that deployments registered.

mod handlers;
mod record;

pub(crate) use handlers::*;
pub(crate) use record::InvocationBody;
