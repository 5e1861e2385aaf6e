//! The first program of a sandbox as a program of its own: what the tests put into one.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    match words.split_first() {
        Some((what, words)) if what == "network" => casement_runner::network(words),
        _ => casement_runner::inside(),
    }
}
