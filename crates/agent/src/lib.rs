//! The first process in a browser's sandbox.
//!
//! [`run()`] starts the browser and its display, forwards the browser's traffic to the egress socket, and serves the
//! session's operations on two inherited sockets. The messages are in `casement-agent-protocol`.

mod browser;
mod browser_handle;
mod browser_state;
mod cdp;
mod chromedriver;
mod chromium;
mod clock;
mod computer;
mod curl;
mod dial;
mod display;
mod downloads;
mod egress;
mod endpoint;
mod event_stream;
mod extension;
mod extension_contexts;
mod flags;
mod forward;
mod fs;
mod login_page;
mod memory;
mod own_page;
mod path_text;
mod picture;
mod priority;
mod process;
mod profile;
mod random_id;
mod receive;
mod remote_forward;
mod replay;
mod reply;
mod restart;
mod restart_queue;
mod run;
mod screen;
mod screen_capture;
mod script;
mod serve;
mod server_contact;
mod session_log;
mod status;
mod supervisor;
mod telemetry;
mod view;
mod webmcp;
mod window_manager;
mod x11;

pub use run::{AgentError, run};
pub use session_log::AgentLog;
