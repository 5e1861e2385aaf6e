//! The app runner as a separate program for the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((what, arguments)) if what == "network" => casement_runner::prepare_network(arguments),
        _ => casement_runner::run_app_runner(),
    }
}
