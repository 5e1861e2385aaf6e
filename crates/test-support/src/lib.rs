//! Helpers for the tests and benchmarks of several crates. A development dependency only.
//!
//! - [`until`] and [`try_until`] wait for a condition, [`within`] bounds a future. Nothing sleeps for a fixed time.
//! - [`cdp::Cdp`]: a DevTools client over a connection that the test has made.
//! - [`archives`]: ZIP archives, created by Python.
//! - [`login_pages`] and [`telemetry_site`]: web sites of the tests.
//! - [`remote_browser`]: a browser outside of every sandbox.
//! - [`websocket`]: HTTP heads and WebSocket frames as bytes.
//! - [`program`]: the built program with its clients, for the end-to-end tests and the benchmarks.

pub mod archives;
pub mod cdp;
pub mod login_pages;
pub mod program;
pub mod remote_browser;
pub mod telemetry_site;
mod wait;
pub mod websocket;

pub use self::wait::{try_until, try_until_async, until, within};

/// Returns the width and height of a PNG image from its header, or `None` if the bytes are not a PNG image.
pub fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |from: usize| Some(u32::from_be_bytes(bytes.get(from..from + 4)?.try_into().ok()?));
    bytes.starts_with(b"\x89PNG\r\n\x1a\n").then(|| Some((number(16)?, number(20)?)))?
}
