//! Requests through the browser: the words of `/v1/curl/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`CurlRequest`] → a stream: [`CurlHead`] as one line of JSON, then the bytes of the body.
pub const REQUEST: &str = "/v1/curl/request";

/// Longest line of [`CurlHead`], in bytes.
pub const MAX_HEAD_LINE: usize = 1 << 20;

/// Body of [`REQUEST`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurlRequest {
    /// Where to: `http` or `https`.
    pub url: String,
    /// How.
    pub method: String,
    /// In place of the browser's own, or besides them.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// What is sent, in base64.
    #[serde(default)]
    pub body_b64: Option<String>,
    /// When the head of the answer must be there, in milliseconds.
    pub timeout_ms: u64,
}

/// What failed outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Upstream {
    /// Its name is not known.
    Dns,
    /// No secure connection came to be.
    Tls,
    /// The session's proxy could not be used.
    Proxy,
    /// It answered what is no answer.
    HttpStatus,
    /// It could not be reached, or broke off; or a word of a newer agent.
    #[serde(other)]
    Connect,
}

/// What came back, but for its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurlHead {
    /// The status.
    pub status: u16,
    /// The headers; a name comes once per value.
    pub headers: Vec<(String, String)>,
}
