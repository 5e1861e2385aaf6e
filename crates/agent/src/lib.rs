//! The first program in a session's sandbox, and its protocol.
//!
//! [`run`] is the program: it starts the browser and its display, forwards the browser's traffic to the one socket that leads out,
//! and serves the session's operations on two sockets it inherits. [`protocol`] are the words it speaks, [`client`] is the other side.

mod browser;
mod cdp;
mod chromedriver;
mod chromium;
pub mod client;
mod computer;
mod core;
mod curl;
mod dial;
mod display;
mod downloads;
mod extension;
mod flags;
mod forward;
mod fs;
mod keeper;
mod login_page;
mod memory;
mod picture;
mod priority;
mod process;
mod profile;
pub mod protocol;
mod receive;
mod replay;
mod reply;
mod restart;
mod run;
mod script;
mod serve;
mod session_log;
mod telemetry;
mod view;
mod way_out;
mod x11;

pub use run::{AgentError, run};
pub use session_log::AgentLog;
