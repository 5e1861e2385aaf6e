//! The harness of the end-to-end tests.
//!
//! - [`Server`]: the program in a directory of its own, on a port of its own. Kill it, start it again, stop it; when it
//!   goes out of scope its sessions are ended and **nothing may be left**: no process, mount or socket.
//! - [`Shared`]: one server for all tests that only use it as a caller does. Take it unless a test must break something.
//! - [`Pages`]: web pages of the test, on this machine; a server must be told to let its browsers reach them.
//! - [`http`]: one request, one answer, nothing hidden. `Server` has short forms with its key in them.
//! - [`Cdp`]: a DevTools client that blocks, for tests that look at one browser from Rust.
//! - [`Clients`]: runs scripts with the public JavaScript and Python clients, with a deadline.
//! - [`Tinyproxy`]: a proxy that others have written.
//! - [`until`]: waits for a condition. Nothing here sleeps for a time and then looks.

mod cdp;
mod clients;
pub(crate) mod http;
mod leftovers;
mod pages;
mod server;
mod shared;
mod tinyproxy;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

pub(crate) use self::cdp::Cdp;
pub(crate) use self::clients::{Clients, repository};
pub(crate) use self::leftovers::{Process, processes_of, remains_of};
pub(crate) use self::pages::{Pages, body};
pub(crate) use self::server::{Options, Server, Session};
pub(crate) use self::shared::Shared;
pub(crate) use self::tinyproxy::Tinyproxy;

/// Waits until `look` gives a value, and gives that. `what` says what was waited for when it never comes.
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
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

/// Width and height of a PNG image, as its header says; `None` if it is none.
pub(crate) fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |from: usize| Some(u32::from_be_bytes(bytes.get(from..from + 4)?.try_into().ok()?));
    bytes.starts_with(b"\x89PNG\r\n\x1a\n").then(|| Some((number(16)?, number(20)?)))?
}
