//! The ports of login pages.

use std::time::Duration;

use async_trait::async_trait;

use super::{Act, Handle, Mark, Reading};
use crate::browser::EngineError;
use crate::ids::BrowserId;

/// The condition that a reading waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCondition {
    /// Waits until the page differs from the reading with this mark; `None`: until the page has settled.
    pub differs_from: Option<Mark>,
    /// The maximum wait, up to 60 s. Then the page is read as it is.
    pub within: Duration,
}

/// An error of a login page.
#[derive(Debug, thiserror::Error)]
pub enum LoginPageError {
    /// The page could not be loaded: unknown host, refused connection, private address, TLS error, timeout.
    #[error("the page could not be loaded: {reason}")]
    NavigationFailed {
        /// The name of the error in Chromium: `net::ERR_NAME_NOT_RESOLVED`.
        reason: String,
    },
    /// The element of a handle no longer exists; the page must be read again.
    #[error("the page has changed since it was read")]
    Stale(Handle),
    /// The frame does not have the origin that the value is for. Nothing was typed.
    #[error("the value is for {wanted}, and the frame is of {found}: nothing was typed")]
    WrongOrigin {
        /// The origin of the value.
        wanted: String,
        /// The origin of the frame.
        found: String,
    },
    /// The element cannot be acted on: it is hidden, disabled or covered.
    #[error("the element cannot be used: {0}")]
    NotUsable(String),
    /// The page did not answer.
    #[error("the page did not answer within {seconds} s")]
    Hangs {
        /// The timeout.
        seconds: u32,
    },
    /// The browser or its agent failed or has ended.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The port that reads and fills in the login page of a browser: the opened page, or the window that it opened for a
/// part of the login. Each browser has one caller at a time.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LoginPages: Send + Sync {
    /// Opens `url` in place of the previous login page, if any, and waits until its document begins to load.
    ///
    /// # Errors
    /// [`LoginPageError::NavigationFailed`] if it cannot be loaded.
    async fn open(&self, browser: BrowserId, url: &str) -> Result<(), LoginPageError>;

    /// Reads the page when `wait` is satisfied.
    ///
    /// # Errors
    /// [`LoginPageError::NavigationFailed`] if the page is the browser's own error page.
    async fn read(&self, browser: BrowserId, wait: ReadCondition) -> Result<Reading, LoginPageError>;

    /// Performs `acts` in order, with the events that a person causes, and stops at the first that fails. The values
    /// are sent to the browser's agent, which stores none of them.
    ///
    /// # Errors
    /// [`LoginPageError::Stale`], [`LoginPageError::WrongOrigin`], [`LoginPageError::NotUsable`].
    async fn act(&self, browser: BrowserId, acts: Vec<Act>) -> Result<(), LoginPageError>;

    /// Takes a screenshot of the page for the operator, as PNG. The values of fields are made unreadable first.
    async fn screenshot(&self, browser: BrowserId) -> Result<Vec<u8>, LoginPageError>;
}
