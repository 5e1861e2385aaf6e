//! Tests of the agent in a sandbox with a real browser, through its own client.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "measured times and sizes are worth reading beside the result")]

#[path = "all/browser_state.rs"]
mod browser_state;
#[path = "all/cdp.rs"]
mod cdp;
#[path = "all/client.rs"]
mod client;
#[path = "all/computer.rs"]
mod computer;
#[path = "all/computer_clipboard.rs"]
mod computer_clipboard;
#[path = "all/computer_display.rs"]
mod computer_display;
#[path = "all/computer_headless.rs"]
mod computer_headless;
#[path = "all/curl.rs"]
mod curl;
#[path = "all/dialogs.rs"]
mod dialogs;
#[path = "all/endings.rs"]
mod endings;
#[path = "all/executors.rs"]
mod executors;
#[path = "all/files.rs"]
mod files;
#[path = "all/headful.rs"]
mod headful;
#[path = "all/headless.rs"]
mod headless;
#[path = "all/playwright.rs"]
mod playwright;
#[path = "all/process.rs"]
mod process;
#[path = "all/profile.rs"]
mod profile;
#[path = "all/remote.rs"]
mod remote;
#[path = "all/remote_loss.rs"]
mod remote_loss;
#[path = "all/repl.rs"]
mod repl;
#[path = "all/replay.rs"]
mod replay;
#[path = "all/restart.rs"]
mod restart;
#[path = "all/sandbox.rs"]
mod sandbox;
#[path = "all/script.rs"]
mod script;
#[path = "all/script_isolation.rs"]
mod script_isolation;
#[path = "all/session_log.rs"]
mod session_log;
#[path = "all/telemetry.rs"]
mod telemetry;
#[path = "all/telemetry_bounds.rs"]
mod telemetry_bounds;
#[path = "all/telemetry_changes.rs"]
mod telemetry_changes;
#[path = "all/view.rs"]
mod view;
#[path = "all/web.rs"]
mod web;
#[path = "all/webmcp.rs"]
mod webmcp;
#[path = "all/webmcp_custom.rs"]
mod webmcp_custom;
#[path = "all/windows.rs"]
mod windows;
