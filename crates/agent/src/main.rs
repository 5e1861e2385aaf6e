//! The agent as a separate program, which the tests put into a sandbox.

use std::path::Path;
use std::process::ExitCode;

use casement_agent_protocol::CONFIG_PATH;

fn main() -> ExitCode {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| CONFIG_PATH.into());
    casement_agent::run(Path::new(&path))
}
