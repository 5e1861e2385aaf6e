//! Relays, WebDriver and the live view, against upstreams that the tests play themselves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bytes;
mod capabilities;
mod display;
mod endings;
mod hangup;
mod live_view;
mod pressure;
mod support;
mod webdriver;
