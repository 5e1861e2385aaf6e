//! Relays, WebDriver and the live view, with simulated upstreams.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bytes;
mod capabilities;
mod disconnect;
mod display;
mod endings;
mod files;
mod live_view;
mod pings;
mod pressure;
mod support;
mod webdriver;
