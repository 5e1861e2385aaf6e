//! Browsers behind a W3C WebDriver server, driven with fantoccini.
//!
//! Knows nothing of sandboxes: the caller passes a [`Connect`] that opens a stream to the WebDriver server.

mod check;
mod connector;

pub use check::{WebDriverError, attach, check};
pub use connector::Connect;
