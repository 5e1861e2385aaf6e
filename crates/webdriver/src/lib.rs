//! The engine on any W3C WebDriver server: a Selenium Grid, Moon, Selenoid or a plain chromedriver.
//!
//! [`WebDriverEngine`] starts, watches and ends browsers there, and carries their CDP and `BiDi` connections. It does
//! not depend on sandboxes: [`attach`] and [`check`] drive a browser over a [`Connect`] that the caller passes, and
//! [`WebDriverEngine::serve_cdp`] serves a listener that the caller opens.

mod address;
mod answer;
mod capabilities;
mod cdp;
mod check;
mod client;
mod config;
mod connector;
mod debugger;
mod dial;
mod doctor;
mod engine;
mod error;
mod files;
mod listing;
mod ready_socket;
mod record;
mod status;
mod sweep;
mod watch;

pub use check::{WebDriverError, attach, check};
pub use config::{ConfigError, Credentials, WebDriverConfig};
pub use connector::Connect;
pub use dial::{Channel, Endpoint, GridStream};
pub use doctor::{CheckFailed, CheckStage, Checked};
pub use engine::WebDriverEngine;
pub use error::{GridError, into_engine_error};
pub use files::Download;
pub use record::{BadRecord, RemoteSession};
pub use status::{NodeStatus, ServerStatus};
pub use sweep::Swept;
pub use watch::SessionLost;
