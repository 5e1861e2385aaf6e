//! The tasks of developers and CI: `cargo xtask up`, `cluster`, `chaos`, `test`, `clients`, `lint`, `openapi`, `chart`, `docs`,
//! `bench`, `dist`.
//!
//! CI and developers run the same commands, so a success means the same for both. This program depends on no crate of
//! Casement, so it builds in seconds on a fresh machine.

mod api_example;
mod api_reference;
mod bench;
mod chaos;
mod chart;
mod client_methods;
mod clients;
mod cluster;
mod dist;
mod docs;
mod lint;
mod markdown;
mod module_cycles;
mod openapi;
mod packages;
mod reverse_proxies;
mod script_runner;
mod step;
mod test;
mod tools;
mod up;
mod vocabulary;
mod workspace;

#[cfg(test)]
mod api_samples_test;
#[cfg(test)]
mod dependency_rules;
#[cfg(test)]
mod docs_links;
#[cfg(test)]
mod migration_rules;
#[cfg(test)]
mod rebuilds;
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
    /// Install missing packages, build Casement and start it in the foreground
    Up(up::Options),
    /// Start several servers over one database on this machine, behind a load balancer
    Cluster(cluster::Options),
    /// Let callers use several servers for minutes while one after the other fails, and check what must still hold
    Chaos(chaos::Options),
    /// Install the requirements of the tests and run all tests
    Test(test::Options),
    /// Run the tests that use the API clients, and write docs/clients-methods.md from what they saw
    Clients(client_methods::Options),
    /// Format, vocabulary, cycles of files, clippy, documentation, licences and sources of dependencies
    Lint(lint::Options),
    /// Write docs/openapi.json, docs/operations.md, docs/metrics.md and docs/api from the code
    Openapi(openapi::Options),
    /// Check the Helm chart, with helm and the schemas of Kubernetes, and the compose file
    Chart,
    /// Build the pages of docs as a site in target/site
    Docs,
    /// Measure the built program and print the table of docs/benchmarks.md
    Bench(bench::Options),
    /// Build the files of a release: Debian package, tarball, checksums, list of dependencies
    Dist,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Up(options) => up::run(&options),
        Task::Cluster(options) => cluster::run(&options),
        Task::Chaos(options) => chaos::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Clients(options) => client_methods::run(&options),
        Task::Lint(options) => lint::run(&options),
        Task::Openapi(options) => openapi::run(&options),
        Task::Chart => chart::run(),
        Task::Docs => docs::run(),
        Task::Bench(options) => bench::run(&options),
        Task::Dist => dist::run(),
    }
}
