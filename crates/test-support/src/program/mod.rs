//! The harness of the end-to-end tests and the benchmarks.
//!
//! - [`Server`]: the program with a directory and a port of its own. Tests kill, restart and stop it. When it is
//!   dropped, its sessions end and **nothing may be left**: no process, mount, socket or sandbox.
//! - [`Cluster`]: several servers over one database, each on a host of its own, behind a load balancer. Tests kill and stop
//!   nodes, pull cables, and stop what all of them use.
//! - [`Shared`]: one server for all tests that use it like a caller. Use it unless a test must break something.
//! - [`Pages`]: web pages of the test, on this machine; a server needs an option to let its browsers reach them.
//! - [`http`]: one request and one response, with all bytes visible. `Server` has short forms that use its key.
//! - [`Cdp`]: a blocking DevTools client.
//! - [`Clients`]: runs scripts with the public JavaScript and Python clients, with a timeout.
//! - [`Grid`]: a third-party Selenium Grid of a hub and nodes.
//! - [`ObjectStore`]: a third-party S3-compatible store.
//! - [`Tinyproxy`]: a third-party proxy.
//! - [`flood`]: the size of a flood, full in the nightly run.
//! - [`until`]: waits for a condition. Nothing sleeps for a fixed time.

mod cdp;
mod clients;
mod cluster;
mod cluster_template;
mod engine;
mod grid;
pub mod http;
mod leftovers;
mod object_store;
mod options;
mod pages;
mod peers;
mod places;
mod remainders;
mod server;
mod session;
mod shared;
mod sizes;
mod tinyproxy;
mod watchdog;

use std::thread;
use std::time::Duration;

use anyhow::Context as _;

pub use self::cdp::Cdp;
pub use self::clients::{Clients, Script, repository};
pub use self::cluster::{
    AnsweredChange, Caused, Cluster, ClusterOptions, Database, Fault, Load, Numbers, QUEUE_LOG, QueueOrder, Report,
};
pub use self::grid::{Grid, GridOptions, GridSession};
pub use self::leftovers::{Process, claims_below, control_groups, processes_of, remains_of};
pub use self::object_store::ObjectStore;
pub use self::options::{Options, Place, StoreConnection};
pub use self::pages::{Pages, body};
pub use self::places::program;
pub use self::server::Server;
pub use self::session::Session;
pub use self::shared::Shared;
pub use self::sizes::flood;
pub use self::tinyproxy::Tinyproxy;
use crate::wait::Checks;

/// Waits until `look` returns a value, and returns the value. `what` describes the condition in the error.
///
/// # Errors
/// When there is no value within the limit.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let mut checks = Checks::until(limit);
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        thread::sleep(checks.next().with_context(|| format!("not within {limit:?}: {what}"))?);
    }
}
