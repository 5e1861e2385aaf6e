//! Checks for real whether a WebDriver server can be the engine of browsers.

use std::fmt;
use std::time::Duration;

use casement_domain::browser::Shape;
use casement_domain::ids::BrowserId;
use casement_domain::untrusted_json;
use fantoccini::Client;
use fantoccini::error::CmdError;
use futures_util::{SinkExt as _, StreamExt as _};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::check::{PAGE, PNG, TITLE};
use crate::dial::{Channel, Endpoint};
use crate::engine::WebDriverEngine;
use crate::error::GridError;
use crate::record::RemoteSession;
use crate::status::ServerStatus;

const MAX_MESSAGE: usize = 1024 * 1024;
/// How many messages may come before the answer.
const MAX_EVENTS: usize = 1000;

/// A stage of the check of a WebDriver server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStage {
    /// The server answers its state.
    Status,
    /// A browser is started.
    Start,
    /// The browser answers over CDP, over the way that sessions use.
    Cdp,
    /// The browser answers over WebDriver `BiDi`.
    Bidi,
    /// A page is opened and a screenshot is taken over classic WebDriver.
    Page,
    /// The sessions of this installation are listed.
    List,
    /// The browser is ended.
    End,
}

impl CheckStage {
    /// Returns what to do about a failure, for people.
    #[must_use]
    pub const fn remedy(self, error: &GridError) -> &'static str {
        match (error, self) {
            (GridError::Unauthorized { .. }, _) => "configure the user and the password of the server",
            (GridError::Redirect { .. }, _) => "configure the URL that the redirect leads to",
            (GridError::Unreachable { .. }, _) => {
                "check the URL, that the server runs, and that this machine may reach it; for https, its authority"
            }
            (GridError::Busy { .. } | GridError::Full { .. }, _) => "add nodes, or end sessions of the server",
            (_, Self::Status) => "check that the URL, with its path, is that of a WebDriver server",
            (_, Self::Start) => "read the log of the node: Chrome or its driver does not start there",
            (_, Self::Cdp) => {
                "the server must forward CDP: a Selenium Grid does with a CDP of Chrome enabled; for others configure the path"
            }
            (_, Self::Bidi) => "the server must forward WebDriver BiDi: use a Selenium Grid 4.8 or later",
            (_, Self::Page) => "read the log of the node: its browser does not work",
            (_, Self::List) => {
                "the server must list its sessions, as a Selenium Grid 4 does: others leave lost ones running"
            }
            (_, Self::End) => "read the log of the server: it does not end sessions",
        }
    }
}

impl fmt::Display for CheckStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "the server's status",
            Self::Start => "starting a browser",
            Self::Cdp => "CDP",
            Self::Bidi => "WebDriver BiDi",
            Self::Page => "opening a page",
            Self::List => "listing sessions",
            Self::End => "ending the browser",
        })
    }
}

/// A failed check of a WebDriver server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage} failed: {source}")]
pub struct CheckFailed {
    /// The stage.
    pub stage: CheckStage,
    /// The reason.
    pub source: GridError,
}

impl CheckFailed {
    /// Returns what to do about it, for people.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        self.stage.remedy(&self.source)
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The state of the server before the check.
    pub status: ServerStatus,
    /// The version of the browser.
    pub browser_version: String,
    /// True if files that the browser downloads can be read.
    pub has_downloads: bool,
}

impl WebDriverEngine {
    /// Checks the server for real: starts a browser without a display, drives it over CDP, `BiDi` and classic
    /// WebDriver, finds its session by its mark, and ends it.
    ///
    /// # Errors
    /// [`CheckFailed`] with the first stage that failed. The browser is ended nevertheless.
    pub async fn check(&self, browser: BrowserId) -> Result<Checked, CheckFailed> {
        let at = |stage| move |source| CheckFailed { stage, source };
        let status = self.status().await.map_err(at(CheckStage::Status))?;
        let shape = Shape { headless: true, ..Shape::default() };
        let session = self.start(browser, &shape, &Map::new()).await.map_err(at(CheckStage::Start))?;
        let driven = self.drive(&session).await;
        let ended = self.end(&session).await.map_err(at(CheckStage::End));
        driven.and(ended)?;
        Ok(Checked { status, has_downloads: session.has_downloads(), browser_version: session.browser_version })
    }

    async fn drive(&self, session: &RemoteSession) -> Result<(), CheckFailed> {
        let at = |stage| move |source| CheckFailed { stage, source };
        self.check_cdp(session).await.map_err(at(CheckStage::Cdp))?;
        self.check_bidi(session).await.map_err(at(CheckStage::Bidi))?;
        self.check_page(session).await.map_err(at(CheckStage::Page))?;
        let listed = self.is_listed(session).await.map_err(at(CheckStage::List))?;
        if listed {
            return Ok(());
        }
        Err(at(CheckStage::List)(GridError::nonsense("the list of sessions does not hold the mark of the new one")))
    }

    async fn check_cdp(&self, session: &RemoteSession) -> Result<(), GridError> {
        let (near, far) = UnixStream::pair().map_err(|error| GridError::away(error.to_string()))?;
        let endpoint = Endpoint { host: "localhost".to_owned(), path: "/".to_owned(), headers: http::HeaderMap::new() };
        let asking = ask(near, &endpoint, json!({ "id": 1, "method": "Browser.getVersion" }));
        // The connection ends with the question, or the question fails with the connection.
        let (answer, ()) = tokio::join!(self.in_time(asking), self.carry(far, session));
        let product = answer?;
        if product.get("product").is_some_and(Value::is_string) {
            return Ok(());
        }
        Err(GridError::nonsense("Browser.getVersion has no product"))
    }

    async fn check_bidi(&self, session: &RemoteSession) -> Result<(), GridError> {
        let (stream, endpoint) = self.connect(session, Channel::Bidi).await?;
        let question = json!({ "id": 1, "method": "session.status", "params": {} });
        self.in_time(ask(stream, &endpoint, question)).await.map(drop)
    }

    async fn in_time<T>(&self, asking: impl Future<Output = Result<T, GridError>>) -> Result<T, GridError> {
        let within: Duration = self.client.command_timeout();
        timeout(within, asking).await.map_err(|_elapsed| GridError::Timeout { seconds: within.as_secs() })?
    }

    async fn check_page(&self, session: &RemoteSession) -> Result<(), GridError> {
        let url = self.url_of_client();
        let client = Client::with_existing_session(&url, &session.id, self.client.dialer().clone());
        let client = client.await.map_err(|_| GridError::nonsense("the URL cannot be used"))?;
        let result = self.in_time(self.open_page(&client)).await;
        // The session is ended by the engine, not with this client.
        self.in_time(async { client.persist().await.map_err(|error| self.command_failed(&error)) }).await?;
        result
    }

    async fn open_page(&self, client: &Client) -> Result<(), GridError> {
        let failed = |error: CmdError| self.command_failed(&error);
        client.goto(PAGE).await.map_err(failed)?;
        let title = client.title().await.map_err(failed)?;
        let picture = client.screenshot().await.map_err(failed)?;
        if title != TITLE || !picture.starts_with(PNG) {
            let found = self.client.safe(&title);
            return Err(GridError::nonsense(format!("the page has the title {found:?}, or no screenshot")));
        }
        Ok(())
    }

    fn command_failed(&self, error: &CmdError) -> GridError {
        match error {
            CmdError::Standard(error) => {
                let code = self.client.safe(&error.error.to_string());
                GridError::Refused { code, message: self.client.safe(&error.message) }
            }
            // The text of others may hold the URL with the credentials.
            CmdError::FailedC(_) | CmdError::Failed(_) | CmdError::Lost(_) => {
                GridError::away("the connection was lost")
            }
            _ => GridError::nonsense("the answer to a command of classic WebDriver"),
        }
    }

    /// The URL for fantoccini, which takes the credentials from it.
    fn url_of_client(&self) -> String {
        let address = &self.config.address;
        let credentials = self.config.credentials.as_ref().map(|credentials| {
            let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            let password = encoded(credentials.password().expose_secret());
            format!("{}:{password}@", encoded(credentials.user()))
        });
        let scheme = if address.secure { "https" } else { "http" };
        format!("{scheme}://{}{}{}/", credentials.unwrap_or_default(), address.authority(), address.prefix)
    }
}

/// Opens a WebSocket, asks one question with the id 1, and returns the result.
async fn ask<S>(stream: S, endpoint: &Endpoint, question: Value) -> Result<Value, GridError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |_| GridError::away("the WebSocket was interrupted");
    let url = format!("ws://{}{}", endpoint.host, endpoint.path);
    let mut request = url.into_client_request().map_err(|_| GridError::nonsense("the address of the WebSocket"))?;
    request.headers_mut().extend(endpoint.headers.clone());
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    let opened = client_async_with_config(request, stream, Some(config)).await;
    let (mut socket, _) = opened.map_err(|_| GridError::nonsense("it opens no WebSocket"))?;
    socket.send(Message::text(question.to_string())).await.map_err(broken)?;
    for _ in 0..MAX_EVENTS {
        let Some(message) = socket.next().await else { break };
        let Message::Text(text) = message.map_err(broken)? else { continue };
        let answer: Value =
            untrusted_json::parse(text.as_bytes()).map_err(|_| GridError::nonsense("a message is no JSON"))?;
        if answer.get("id") == Some(&json!(1)) {
            socket.close(None).await.ok();
            return answer.get("result").cloned().ok_or_else(|| GridError::nonsense("the question is refused"));
        }
    }
    Err(GridError::away("the WebSocket ended without an answer"))
}
