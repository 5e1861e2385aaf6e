//! A WebDriver client for tests, based on fantoccini.
//!
//! It does not depend on sandboxes: the caller passes a [`Connect`] that opens a stream to the WebDriver server.

mod check;
mod connector;

pub use check::{WebDriverError, attach, check};
pub use connector::Connect;
