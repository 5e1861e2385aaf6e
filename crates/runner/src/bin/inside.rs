//! The first program of a sandbox as a program of its own: what the tests put into one.

use std::process::ExitCode;

fn main() -> ExitCode {
    casement_runner::inside()
}
