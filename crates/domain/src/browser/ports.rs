//! The ports of browsers.

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::{Browser, Location, Region, Shape, StartUrl, Viewport};
use crate::ids::{BrowserId, NodeId};
use crate::store_error::StoreError;

/// A browser to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The id of the browser.
    pub id: BrowserId,
    /// The shape of the browser.
    pub shape: Shape,
    /// The time in seconds without contact to a server after which the sandbox ends itself.
    pub abandoned_after_seconds: u32,
    /// The W3C capabilities that a WebDriver client requests. They matter to an engine whose browser has its WebDriver
    /// session from the start; other browsers get theirs when the client's session is bound to them.
    pub capabilities: Map<String, Value>,
}

impl Launch {
    /// Returns the launch of a browser without requested capabilities.
    #[must_use]
    pub fn new(id: BrowserId, shape: Shape, abandoned_after_seconds: u32) -> Self {
        Self { id, shape, abandoned_after_seconds, capabilities: Map::new() }
    }
}

/// The hand-out of a browser to a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandOut {
    /// The URL to open.
    pub start_url: Option<StartUrl>,
    /// The new time in seconds without contact to a server after which the sandbox ends itself.
    pub abandoned_after_seconds: u32,
}

/// A started browser that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// The version that the browser reports.
    pub version: String,
    /// The stages of the start in order, with their durations in milliseconds.
    pub stages: Vec<(String, u32)>,
}

/// The part that failed; the closed list of `inner_error.code` for browsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineFault {
    /// Chromium ended.
    BrowserCrashed,
    /// Chromium or its page does not answer.
    BrowserHung,
    /// The agent does not answer, or its answer is invalid.
    AgentError,
    /// The display failed.
    DisplayError,
    /// The proxy of the browser's traffic cannot be used on this node.
    ProxyError,
    /// The server of a remote browser refused or failed.
    RemoteError,
}

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The browser is not running on this node.
    #[error("browser {0} is not running")]
    NotRunning(BrowserId),
    /// The request failed without effect.
    #[error("{message}")]
    Failed {
        /// The part that failed.
        fault: EngineFault,
        /// The message for people, safe to show.
        message: String,
    },
    /// The request failed midway, and may have taken effect.
    #[error("{message}")]
    Lost {
        /// The part that failed.
        fault: EngineFault,
        /// The message for people, safe to show.
        message: String,
    },
    /// The request exceeds what the browser can do. It had no effect.
    #[error("{0}")]
    OutOfRange(String),
    /// The page waits for an answer to its dialog. The request had no effect.
    #[error("{0}")]
    Waits(String),
    /// Chromium refuses an extension, or the extension was deleted.
    #[error("{0}")]
    Extension(String),
    /// The profile was deleted, or its stored version cannot be used.
    #[error("{0}")]
    Profile(String),
    /// Something that the request needs does not respond: the store of profiles and extensions. The request had no
    /// effect.
    #[error("{0}")]
    Unavailable(String),
    /// The browser cannot have the location. The request had no effect.
    #[error("{0}")]
    Location(String),
    /// The request took too long.
    #[error("the browser took longer than {seconds} s")]
    Timeout {
        /// The timeout.
        seconds: u32,
    },
    /// The server of an engine has no place for another browser now. Its reason is for callers.
    #[error("the engine is full: {0}")]
    Full(String),
    /// The node has no capacity for another browser, or lacks something that isolation needs.
    #[error("no browser can be started here: {0}")]
    NoRoom(String),
}

/// Runs browsers, each in a sandbox of its own.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait BrowserEngine: Send + Sync {
    /// Starts a browser. Returns once its page has evaluated an expression, not when a port is open. A start that
    /// fails leaves nothing behind.
    async fn start(&self, launch: &Launch) -> Result<Started, EngineError>;

    /// Proves that the page of a warm browser answers now, and begins to open its start URL without waiting for it.
    async fn hand_out(&self, id: BrowserId, to: HandOut) -> Result<(), EngineError>;

    /// Changes the size of the display.
    ///
    /// # Errors
    /// [`EngineError::OutOfRange`] if the display cannot have that size while Chromium runs.
    async fn set_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError>;

    /// Restarts display and Chromium in the new size, with the same profile and the same pages. Connections to the
    /// browser end.
    ///
    /// # Errors
    /// [`EngineError::OutOfRange`] if this node has no memory for a display of that size; then nothing changed. After
    /// any other failure the browser may have ended.
    async fn restart_with_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError>;

    /// Returns whether the browser was last started with this location.
    ///
    /// # Errors
    /// [`EngineError::Location`] if the browser can have no other location than its own.
    async fn has_location(&self, id: BrowserId, location: Location) -> Result<bool, EngineError>;

    /// Restarts Chromium with another location, with the same profile and the same pages. Connections to the browser
    /// end.
    ///
    /// # Errors
    /// [`EngineError::Location`] if the browser cannot have the location; then nothing changed. After any other failure
    /// the browser may have ended.
    async fn restart_with_location(&self, id: BrowserId, location: Location) -> Result<(), EngineError>;

    /// Returns whether a recording of the display is running.
    async fn is_recording(&self, id: BrowserId) -> Result<bool, EngineError>;

    /// Takes a PNG of the display of that size, or of a region, in exactly its size in pixels.
    async fn screenshot(
        &self,
        id: BrowserId,
        display: Viewport,
        region: Option<Region>,
    ) -> Result<Vec<u8>, EngineError>;

    /// Returns whether the browser is running on this node, or is being started or ended; after the engine has released
    /// its browsers, whether the browser may be running.
    fn is_known(&self, id: BrowserId) -> bool;

    /// Ends the browser with everything in its sandbox; returns when nothing of it is left. A missing browser is not an
    /// error.
    async fn end(&self, id: BrowserId) -> Result<(), EngineError>;
}

/// The port to the stored browsers of pools and sessions. The ports of pools and sessions create and lease browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait BrowserRepository: Send + Sync {
    /// Finds a browser.
    async fn find(&self, id: BrowserId) -> Result<Option<Browser>, StoreError>;

    /// Returns all browsers of a node, in any state.
    async fn of_node(&self, node: NodeId) -> Result<Vec<Browser>, StoreError>;

    /// Marks the browser as ending if it is warming or idle; `false` if it is leased, ending or deleted.
    async fn discard(&self, id: BrowserId) -> Result<bool, StoreError>;

    /// Deletes a browser whose sandbox has ended. A missing browser is not an error.
    async fn forget(&self, id: BrowserId) -> Result<(), StoreError>;
}

/// The spare browsers of a node, of the most requested shapes.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait SpareBrowsers: Send + Sync {
    /// Takes a spare of a shape, which is then replaced in the background.
    fn take(&self, shape: &Shape) -> Option<BrowserId>;

    /// Puts back a browser that was not used.
    fn put_back(&self, shape: &Shape, id: BrowserId);
}
