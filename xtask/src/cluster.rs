//! `cargo xtask cluster`: several servers over one database on this machine, behind a load balancer.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, anyhow};

use crate::{clients, packages, reverse_proxies, script_runner, step, up, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of servers
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// The port of the load balancer; the servers have the ports after it
    #[arg(long, default_value_t = 8080, value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    port: u16,
    /// Build without optimisation: the build is faster, the program slower
    #[arg(long)]
    dev: bool,
    /// Arguments for each `casement serve`
    #[arg(last = true, value_name = "ARGUMENT")]
    serve: Vec<String>,
}

/// What is printed first: the steps.
const PLAN: &str = "==> installs missing packages, the script runner, HAProxy and an S3 store, builds Casement, and starts one PostgreSQL, \
    the store, the servers and HAProxy in front of them";

pub(crate) fn run(options: &Options) -> Result<()> {
    eprintln!("{PLAN}");
    let started = Instant::now();
    packages::ensure(&[packages::RUN, packages::FONTS, packages::CLUSTER])?;
    script_runner::ensure()?;
    let clients = clients::ensure_store()?;
    let reverse_proxies = reverse_proxies::ensure_balancer()?;
    let mut build = workspace::cargo();
    build.args(["build", "--locked", "--package", "casement", "--bin", "casement"]);
    build.args(["--package", "casement-test-support", "--example", "cluster"]);
    up::build(&mut build, options.dev)?;
    eprintln!("==> everything is installed and built after {}", step::readable(started.elapsed()));

    let program = workspace::target()?.join(up::profile(options.dev)).join("examples/cluster");
    let mut cluster = Command::new(&program);
    cluster.args([options.nodes.to_string(), options.port.to_string()]).args(&options.serve);
    cluster.env("CASEMENT_TEST_CLIENTS", clients).env("CASEMENT_TEST_REVERSE_PROXIES", reverse_proxies);
    eprintln!("==> starting {} servers, about 10 s: {}", options.nodes, program.display());
    // It replaces this process, so that it receives Ctrl-C directly.
    Err(anyhow!(cluster.exec()).context(format!("cannot start {}", program.display())))
}
