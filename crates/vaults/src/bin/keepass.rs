//! The program that reads a KeePass database as a program of its own: what the tests start.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    casement_vaults::read_keepass(&std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_default())
}
