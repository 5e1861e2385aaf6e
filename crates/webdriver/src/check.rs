//! Checks that a running browser can be driven over WebDriver.

use fantoccini::error::{CmdError, NewSessionError};
use fantoccini::{Client, ClientBuilder};
use serde_json::json;

use crate::Connect;

/// The URL in requests. chromedriver refuses other host names; [`Connect`] opens the actual stream.
const CHROMEDRIVER: &str = "http://127.0.0.1:9515/";
/// The address of the browser's debugging port, as chromedriver reaches it.
const DEBUGGER: &str = "127.0.0.1:9222";
pub(crate) const TITLE: &str = "Casement";
pub(crate) const PAGE: &str = "data:text/html,<title>Casement</title>";
const WINDOW: (u32, u32) = (800, 600);
pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The reason why a browser cannot be driven over WebDriver.
#[derive(Debug, thiserror::Error)]
pub enum WebDriverError {
    /// The WebDriver server created no session.
    #[error("no WebDriver session: {0}")]
    NewSession(#[source] NewSessionError),
    /// A command failed.
    #[error("the WebDriver command {command} failed: {source}")]
    Command {
        /// The name of the command.
        command: &'static str,
        /// The error of fantoccini.
        source: CmdError,
    },
    /// The result of a command is wrong.
    #[error("the browser shows {found} instead of {expected}")]
    Unexpected {
        /// The expected result.
        expected: String,
        /// The actual result.
        found: String,
    },
}

/// Creates a WebDriver session that is attached to the running browser. Closing it leaves the browser unchanged.
///
/// # Errors
/// [`WebDriverError::NewSession`].
pub async fn attach(connect: Connect) -> Result<Client, WebDriverError> {
    let mut capabilities = fantoccini::wd::Capabilities::new();
    capabilities.insert("goog:chromeOptions".to_owned(), json!({ "debuggerAddress": DEBUGGER }));
    let client = ClientBuilder::new(connect).capabilities(capabilities).connect(CHROMEDRIVER).await;
    client.map_err(WebDriverError::NewSession)
}

/// Opens a page, sizes its window and takes a screenshot over WebDriver.
///
/// # Errors
/// Any [`WebDriverError`].
pub async fn check(connect: Connect) -> Result<(), WebDriverError> {
    let client = attach(connect).await?;
    let result = drive(&client).await;
    // An error can be ignored, because the session ends with the browser at the latest.
    client.close().await.ok();
    result
}

async fn drive(client: &Client) -> Result<(), WebDriverError> {
    let failed = |command| move |source| WebDriverError::Command { command, source };
    client.goto(PAGE).await.map_err(failed("Navigate To"))?;
    client.set_window_size(WINDOW.0, WINDOW.1).await.map_err(failed("Set Window Rect"))?;
    let size = client.get_window_size().await.map_err(failed("Get Window Rect"))?;
    if size != (WINDOW.0.into(), WINDOW.1.into()) {
        return Err(unexpected(&format!("a window of {WINDOW:?}"), format!("one of {size:?}")));
    }
    let title = client.title().await.map_err(failed("Get Title"))?;
    let picture = client.screenshot().await.map_err(failed("Take Screenshot"))?;
    if title != TITLE || !picture.starts_with(PNG) {
        let found = format!("the title {title:?} and {} bytes", picture.len());
        return Err(unexpected(&format!("the title {TITLE:?} and a PNG"), found));
    }
    Ok(())
}

fn unexpected(expected: &str, found: String) -> WebDriverError {
    WebDriverError::Unexpected { expected: expected.to_owned(), found }
}
