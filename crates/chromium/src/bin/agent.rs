//! The agent as a separate program for the tests.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [first, setup, command @ ..] = arguments.as_slice() else {
        return casement_agent::run(Path::new(casement_agent_protocol::CONFIG_PATH));
    };
    // As a network is prepared by the program of the server.
    let setup = setup.to_str().filter(|_| first == "network").and_then(|setup| setup.parse().ok());
    let Some(setup) = setup else { return ExitCode::FAILURE };
    let _error = casement_sandbox::prepare_network(setup, command);
    ExitCode::FAILURE
}
