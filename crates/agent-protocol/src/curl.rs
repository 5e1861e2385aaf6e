//! HTTP requests through the browser: `/v1/curl/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`CurlRequest`] → a stream: [`CurlHead`] as one line of JSON, then the bytes of the body.
pub const REQUEST: &str = "/v1/curl/request";

/// The longest line of [`CurlHead`], in bytes.
pub const MAX_HEAD_LINE: usize = 1 << 20;

/// Body of [`REQUEST`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurlRequest {
    /// The URL: `http` or `https`.
    pub url: String,
    /// The method.
    pub method: String,
    /// Headers that replace the browser's own, or are added.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The body, in base64.
    #[serde(default)]
    pub body_b64: Option<String>,
    /// The timeout for the head of the response, in milliseconds.
    pub timeout_ms: u64,
}

/// The failure of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Upstream {
    /// Its name does not resolve.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// The session's proxy could not be used.
    Proxy,
    /// Its response is invalid.
    HttpStatus,
    /// It could not be reached, or disconnected; or the code of a newer agent.
    #[serde(other)]
    Connect,
}

/// The head of the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurlHead {
    /// The status code.
    pub status: u16,
    /// The headers; a name appears once per value.
    pub headers: Vec<(String, String)>,
}
