//! The browser engine: Chromium in a sandbox, with an agent beside it.
//!
//! [`Engine`] implements the domain's `BrowserEngine`. Each browser is one sandbox whose first program is the agent;
//! the engine communicates with the agent over unix sockets and never with Chromium itself. Sandboxes continue after
//! the server ends: a new process calls [`Engine::find_running`] to adopt them, and then [`Engine::sweep`] to end the
//! others. A [`RemoteBrowser`] runs elsewhere: its sandbox holds the agent only.

mod adopt;
mod config;
mod egress;
mod end;
mod engine;
mod events;
mod fault;
mod locales;
mod operations;
mod port;
mod profile_states;
mod protocol;
mod relocation;
mod remote;
mod restart;
mod running;
mod script_runner;
mod start;
mod versions;
mod watch;

pub use casement_agent_protocol::browser_state::{
    BrowserState, Cookie, CookiePartition, OriginStorage, StateReading, StateWritten, StorageText,
};
pub use casement_agent_protocol::{Channel, Stage, State, Status};
pub use casement_sandbox::OomKill;
pub use config::EngineConfig;
pub use egress::EgressPort;
pub use engine::Engine;
pub use events::{BrowserExitReason, EngineEvent};
pub use fault::EngineSetupError;
pub use profile_states::ProfileStates;
pub use remote::{RemoteBrowser, RemotePort};
pub use script_runner::check as check_script_runner;
pub use versions::check as check_versions;
