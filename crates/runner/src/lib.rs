//! Builds the apps that callers deploy, and runs their actions, each in a separate sandbox.
//!
//! [`AppBuilder`] fetches a source, unpacks it, installs its dependencies and loads its entrypoint once. Its sandboxes
//! reach only the destinations that a step needs. The result is an *artifact*: packed in the blob store, and unpacked
//! on this node, where sandboxes mount it read-only.
//!
//! [`AppRunnerPool`] has a loaded process of each deployment ready in a separate sandbox. A process runs one call and
//! ends, and a replacement is loaded. The sandbox of a call continues after the server ends, and holds the result of
//! the call until a server requests it.
//!
//! [`run_app_runner`] is the app runner, the first process in these sandboxes, and [`prepare_network`] prepares the
//! network of some of them.

mod app_runner;
mod artifact;
mod build;
mod call_records;
mod config;
mod egress;
mod failure;
mod git;
mod host;
mod link;
mod package;
mod protocol;
mod runner_pool;

pub use app_runner::{prepare_network, run_app_runner};
pub use build::AppBuilder;
pub use config::{AppRunnerConfig, AppRunnerSetupError};
pub use egress::{AppEgressPort, EgressPolicy};
pub use package::Packages;
pub use runner_pool::AppRunnerPool;
