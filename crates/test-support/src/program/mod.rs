//! The harness of the end-to-end tests and the benchmarks.
//!
//! - [`Server`]: the program with a directory and a port of its own. Tests kill, restart and stop it; when it is dropped its sessions
//!   end and **nothing may be left**: no process, mount or socket.
//! - [`Shared`]: one server for all tests that only use it as a caller does. Use it unless a test must break something.
//! - [`Pages`]: web pages of the test, on this machine; a server needs an option to let its browsers reach them.
//! - [`http`]: one request, one response, nothing hidden. `Server` has short forms with its key in them.
//! - [`Cdp`]: a blocking DevTools client.
//! - [`Clients`]: runs scripts with the public JavaScript and Python clients, with a timeout.
//! - [`Tinyproxy`]: a third-party proxy.
//! - [`until`]: waits for a condition. Nothing here sleeps for a time and then looks.

mod cdp;
mod clients;
pub mod http;
mod leftovers;
mod pages;
mod server;
mod shared;
mod tinyproxy;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

pub use self::cdp::Cdp;
pub use self::clients::{Clients, Script, repository};
pub use self::leftovers::{Process, processes_of, remains_of};
pub use self::pages::{Pages, body};
pub use self::server::{Options, Server, Session, StoreConnection, program};
pub use self::shared::Shared;
pub use self::tinyproxy::Tinyproxy;

/// Waits until `look` returns a value, and returns it. `what` describes it in the error.
///
/// # Errors
/// When there is no value within the limit.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("not within {limit:?}: {what}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}
