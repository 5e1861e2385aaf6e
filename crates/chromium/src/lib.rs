//! The browser engine: Chromium in a sandbox, with an agent beside it.
//!
//! [`Engine`] implements the domain's `BrowserEngine`. Each browser is one sandbox whose first program is the agent; the
//! engine speaks to it over unix sockets and never to Chromium itself. Sandboxes outlive the server: whoever starts it
//! again calls [`Engine::find_running`] to take them up, and then [`Engine::sweep`] to end what nobody wants.

mod adopt;
mod config;
mod egress;
mod end;
mod engine;
mod events;
mod fault;
mod inside;
mod port;
mod restart;
mod running;
mod script_runner;
mod start;
mod versions;
mod watch;

pub use casement_agent_protocol::{Channel, Stage, State, Status};
pub use casement_sandbox::OomKill;
pub use config::EngineConfig;
pub use egress::EgressPort;
pub use engine::Engine;
pub use events::{BrowserExitReason, EngineEvent, What};
pub use fault::EngineSetupError;
pub use script_runner::check as check_script_runner;
pub use versions::check as check_versions;
