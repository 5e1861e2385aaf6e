//! `/deployments` and `/apps`: programs that callers bring, and what they registered.

mod form;
mod handlers;
mod record;

pub(crate) use handlers::*;
pub(crate) use record::{AppBody, AppSummaryBody, DeploymentBody};
