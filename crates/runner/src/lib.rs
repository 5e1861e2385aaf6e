//! Builds the programs that callers deploy, and runs their actions, each in a sandbox of its own.
//!
//! [`AppBuilder`] builds: a source is fetched, unpacked, its dependencies are installed and its entrypoint is loaded once, each in a
//! sandbox whose way out leads to what that step needs and nowhere else. What a build leaves is an *artifact*: kept packed in the store
//! of bytes, and unpacked on this node, where sandboxes see it and cannot change it.
//!
//! [`AppRunnerPool`] runs: of every deployment a loaded process waits in a sandbox of its own. It takes one call and ends; the next one
//! is loaded behind it. A sandbox outlives the server, and holds the end of its call until a server asks for it.
//!
//! [`inside`] is the first program of all these sandboxes, and [`network`] prepares the network of some of them.

mod artifact;
mod build;
mod call_records;
mod config;
mod egress;
mod failure;
mod git;
mod host;
mod inside;
mod link;
mod package;
mod protocol;
mod runner_pool;

pub use build::AppBuilder;
pub use config::{AppRunnerConfig, AppRunnerSetupError};
pub use egress::{AppEgressPort, EgressPolicy};
pub use inside::{inside, network};
pub use package::Packages;
pub use runner_pool::AppRunnerPool;
