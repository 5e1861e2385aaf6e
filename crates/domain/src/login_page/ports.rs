//! What login pages need from outside.

use std::time::Duration;

use async_trait::async_trait;

use super::{Act, Handle, Mark, Reading};
use crate::browser::EngineError;
use crate::ids::BrowserId;

/// For how long a reading waits, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCondition {
    /// Until the page shows something else than it did in the reading of this mark; `None`: until it has come to rest.
    pub differs_from: Option<Mark>,
    /// At most so long; the page is read then as it is. At most 60 s.
    pub within: Duration,
}

/// Something was not done to a page.
#[derive(Debug, thiserror::Error)]
pub enum LoginPageError {
    /// The page could not be loaded: no such host, refused, a private address, not secure, too slow. The browser's word for it.
    #[error("the page could not be loaded: {reason}")]
    NavigationFailed {
        /// `net::ERR_NAME_NOT_RESOLVED`.
        reason: String,
    },
    /// What a handle names is not there any more: read again.
    #[error("the page has changed since it was read")]
    Stale(Handle),
    /// The frame is of another origin than the value is meant for. Nothing was typed.
    #[error("the value is for {wanted}, and the frame is of {found}: nothing was typed")]
    WrongOrigin {
        /// Meant.
        wanted: String,
        /// Found.
        found: String,
    },
    /// What a handle names cannot be acted on: hidden, switched off, or something lies over it.
    #[error("the element cannot be used: {0}")]
    NotUsable(String),
    /// The page did not answer.
    #[error("the page did not answer within {seconds} s")]
    Hangs {
        /// The bound.
        seconds: u32,
    },
    /// The browser or the agent beside it failed, or is gone.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Reads and fills in the login page that a browser shows: the page that was opened, or the window that it opened for a part of the
/// login. One caller at a time per browser.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LoginPages: Send + Sync {
    /// Opens `url` and waits until its document has begun to come. Any login page of before is forgotten.
    ///
    /// # Errors
    /// [`LoginPageError::NavigationFailed`].
    async fn open(&self, browser: BrowserId, url: &str) -> Result<(), LoginPageError>;

    /// What the page shows, once `wait` is over.
    ///
    /// # Errors
    /// [`LoginPageError::NavigationFailed`] when what it shows is the browser's own page of an error.
    async fn read(&self, browser: BrowserId, wait: ReadCondition) -> Result<Reading, LoginPageError>;

    /// Does `acts` in order, with events as of a person, and stops at the first that fails. The values go to the browser's agent, which
    /// keeps none.
    ///
    /// # Errors
    /// [`LoginPageError::Stale`], [`LoginPageError::WrongOrigin`], [`LoginPageError::NotUsable`].
    async fn act(&self, browser: BrowserId, acts: Vec<Act>) -> Result<(), LoginPageError>;

    /// A PNG of the page, to be kept for the operator. What stands in fields is made unreadable first.
    async fn screenshot(&self, browser: BrowserId) -> Result<Vec<u8>, LoginPageError>;
}
