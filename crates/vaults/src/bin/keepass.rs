//! The reader of KeePass databases as a separate program, for the tests.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    casement_vaults::read_keepass(&std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_default())
}
