//! The way to a server, as this crate needs it.

use std::time::Duration;

use async_trait::async_trait;
use secrecy::{SecretSlice, SecretString};
use url::Url;

/// An answer, whatever its status.
pub struct WebAnswer {
    /// HTTP's.
    pub status: u16,
    /// Whole; it may hold secrets.
    pub body: SecretSlice<u8>,
}

impl std::fmt::Debug for WebAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// There is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The rules, or nobody there; in words.
    Unreachable(String),
    /// It took too long.
    Silent,
    /// Its body is longer than was allowed.
    TooLong,
}

/// Asks servers. A redirect is an answer: it is not followed, for the token is for this server alone.
#[async_trait]
pub trait Web: Send + Sync {
    /// Reads `url` with that token, at most so many bytes, all of it within that time.
    async fn get(
        &self,
        url: &Url,
        bearer: &SecretString,
        most_bytes: usize,
        within: Duration,
    ) -> Result<WebAnswer, NoAnswer>;
}
