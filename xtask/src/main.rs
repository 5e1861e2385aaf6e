//! The tasks of developers and CI: `cargo xtask up`, `test`, `lint`, `openapi`, `bench`.
//!
//! CI calls the same commands that a person types, so a successful run means the same in both places. This program
//! depends on no crate of Casement, so it builds in seconds on a fresh machine.

mod bench;
mod clients;
mod lint;
mod module_cycles;
mod openapi;
mod packages;
mod script_runner;
mod step;
mod test;
mod up;
mod vocabulary;
mod workspace;

#[cfg(test)]
mod dependency_rules;
#[cfg(test)]
mod source_rules;

use clap::{Parser, Subcommand};

/// Tasks of developers and CI.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing, build Casement and start it in the foreground
    Up(up::Options),
    /// Install what the tests need and run all of them
    Test(test::Options),
    /// Format, vocabulary, cycles of files, clippy, documentation, licences and sources of dependencies
    Lint(lint::Options),
    /// Write docs/openapi.json from the handlers
    Openapi(openapi::Options),
    /// Measure the built program and print the table of docs/benchmarks.md
    Bench(bench::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Up(options) => up::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Lint(options) => lint::run(&options),
        Task::Openapi(options) => openapi::run(&options),
        Task::Bench(options) => bench::run(&options),
    }
}
