//! Tests of the engine on a WebDriver server: with a server of the test's own, with a chromedriver and with a Selenium
//! Grid.

mod chromedriver;
mod fake;
mod faults;
mod grid;
mod losses;
mod programs;
mod support;
mod tls;
mod tunnel;
