//! The HTTP client that this crate needs.

use std::time::Duration;

use async_trait::async_trait;
use secrecy::{SecretSlice, SecretString};
use url::Url;

/// A response with any status.
pub struct WebAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The whole body; it may contain secrets.
    pub body: SecretSlice<u8>,
}

impl std::fmt::Debug for WebAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The reason why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The egress rules refuse the server, or it cannot be reached; the text is the reason.
    Unreachable(String),
    /// No response arrived before the timeout.
    Silent,
    /// The body is longer than allowed.
    TooLong,
}

/// Sends requests to servers. Returns redirects without following them, because the token is for this server only.
#[async_trait]
pub trait Web: Send + Sync {
    /// Gets `url` with the token `bearer`: at most `most_bytes` bytes of body, completely within the time `within`.
    async fn get(
        &self,
        url: &Url,
        bearer: &SecretString,
        most_bytes: usize,
        within: Duration,
    ) -> Result<WebAnswer, NoAnswer>;
}
