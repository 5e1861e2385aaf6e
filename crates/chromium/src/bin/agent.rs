//! The agent as a separate program for the tests.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    casement_agent::run(Path::new(casement_agent_protocol::CONFIG_PATH))
}
