//! What running browsers need from outside.

use async_trait::async_trait;

use super::{Browser, Region, Shape, StartUrl, Viewport};
use crate::ids::{BrowserId, NodeId};
use crate::store_error::StoreError;

/// A browser to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its id.
    pub id: BrowserId,
    /// As what.
    pub shape: Shape,
    /// After how many seconds without a word from a server its sandbox ends itself.
    pub abandoned_after_seconds: u32,
}

/// What a browser is told when a caller gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandOut {
    /// What it begins to open.
    pub start_url: Option<StartUrl>,
    /// After how many seconds without a word from a server its sandbox ends itself, from now on.
    pub abandoned_after_seconds: u32,
}

/// A browser that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// What it says of itself.
    pub version: String,
    /// How long each stage of the start took, in milliseconds, in order.
    pub stages: Vec<(String, u32)>,
}

/// Whose fault it was, and what; the closed list of `inner_error.code` as far as browsers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineFault {
    /// Chromium ended.
    BrowserCrashed,
    /// Chromium or its page does not answer.
    BrowserHung,
    /// The agent beside it does not answer, or answered nonsense.
    AgentError,
    /// The display failed.
    DisplayError,
    /// The proxy that its traffic is to go through cannot be used here.
    ProxyError,
}

/// The engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// This browser is not running here.
    #[error("browser {0} is not running")]
    NotRunning(BrowserId),
    /// It failed; nothing of what was asked took effect.
    #[error("{message}")]
    Failed {
        /// What failed.
        fault: EngineFault,
        /// For people, safe to show.
        message: String,
    },
    /// It failed in the middle, so what was asked may have taken effect.
    #[error("{message}")]
    Lost {
        /// What failed.
        fault: EngineFault,
        /// For people, safe to show.
        message: String,
    },
    /// What was asked for lies outside of what this browser can do; nothing of it took effect, and never will.
    #[error("{0}")]
    OutOfRange(String),
    /// The page waits for somebody to answer its dialog; nothing was done.
    #[error("{0}")]
    Waits(String),
    /// Chromium does not take an extension that the browser was to have, or it is not kept any more.
    #[error("{0}")]
    Extension(String),
    /// The profile that the browser was to have is not kept any more, or what is kept of it cannot be used.
    #[error("{0}")]
    Profile(String),
    /// It took too long.
    #[error("the browser took longer than {seconds} s")]
    Timeout {
        /// The bound.
        seconds: u32,
    },
    /// The node has no room for another browser, or lacks something that isolation needs.
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

    /// Gives the display another size.
    ///
    /// # Errors
    /// [`EngineError::OutOfRange`] if the display cannot become so large while Chromium runs.
    async fn set_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError>;

    /// Starts display and Chromium anew, as large as is wanted, with the same profile and the same pages. What is open into the
    /// browser ends.
    ///
    /// # Errors
    /// [`EngineError::OutOfRange`] if this node has no room for so large a display; nothing was touched then. After any other
    /// failure the browser may be gone.
    async fn restart_with_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError>;

    /// Whether a recording of the display runs.
    async fn is_recording(&self, id: BrowserId) -> Result<bool, EngineError>;

    /// A PNG of the display, which has that size, or a part of it, of exactly its size in pixels.
    async fn screenshot(
        &self,
        id: BrowserId,
        display: Viewport,
        region: Option<Region>,
    ) -> Result<Vec<u8>, EngineError>;

    /// Whether the browser runs here, or is being started or ended; of an engine that has let go of its browsers, whether it may run.
    fn is_known(&self, id: BrowserId) -> bool;

    /// Ends the browser with everything in its sandbox. Returns once nothing of it is left. Ending one that is not
    /// there is fine.
    async fn end(&self, id: BrowserId) -> Result<(), EngineError>;
}

/// Where browsers are kept that belong to pools and sessions. How they come to be and are leased stands with those.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait BrowserRepository: Send + Sync {
    /// The browser.
    async fn find(&self, id: BrowserId) -> Result<Option<Browser>, StoreError>;

    /// All browsers of a node, whatever their state.
    async fn of_node(&self, node: NodeId) -> Result<Vec<Browser>, StoreError>;

    /// Marks the browser as ending if it is warming or idle; `false` if it is leased, ending or gone.
    async fn discard(&self, id: BrowserId) -> Result<bool, StoreError>;

    /// Forgets a browser whose sandbox is gone. Forgetting one that is not there is fine.
    async fn forget(&self, id: BrowserId) -> Result<(), StoreError>;
}

/// The node's own reserve of warm browsers of the most asked shapes, never a pool's.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait SpareBrowsers: Send + Sync {
    /// A warm browser of that shape, which is the caller's from now on; the reserve is filled up again by itself.
    fn take(&self, shape: &Shape) -> Option<BrowserId>;

    /// Gives back a browser that nobody touched.
    fn put_back(&self, shape: &Shape, id: BrowserId);
}
