//! Starts a Selenium Grid on this machine and waits for Ctrl-C, to try Casement with it by hand.
//!
//! Its arguments are the number of nodes, and the sessions of each. `cargo xtask test` installs the Grid.

use std::io::Write as _;

use anyhow::Context as _;
use casement_test_support::program::{Grid, GridOptions};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> anyhow::Result<()> {
    let mut options = GridOptions::default();
    let mut arguments = std::env::args().skip(1);
    if let Some(nodes) = arguments.next() {
        options.nodes = nodes.parse().context("the number of nodes")?;
    }
    if let Some(sessions) = arguments.next() {
        options.max_sessions_per_node = sessions.parse().context("the sessions of each node")?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let started = std::time::Instant::now();
    let grid = Grid::start(options)?;
    writeln!(std::io::stdout(), "{} serves after {:.1?}", grid.url(), started.elapsed())?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::io::Result::Ok(())
    })?;
    drop(grid);
    Ok(())
}
