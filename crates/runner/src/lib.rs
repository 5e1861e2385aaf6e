//! Builds the apps that callers deploy, and runs their actions, each in a sandbox of its own.
//!
//! [`AppBuilder`] fetches a source, unpacks it, installs its dependencies and loads its entrypoint once, each step in a
//! sandbox whose egress reaches only what the step needs. The result is an *artifact*: packed in the blob store, and
//! unpacked on this node, where sandboxes mount it read-only.
//!
//! [`AppRunnerPool`] keeps a loaded process of each deployment waiting in a sandbox of its own. A process takes one
//! call and ends; the next one is loaded behind it. A sandbox outlives the server, and keeps the result of its call
//! until a server asks for it.
//!
//! [`run_app_runner`] is the app runner, the first program of these sandboxes, and [`prepare_network`] prepares the network of some of
//! them.

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
