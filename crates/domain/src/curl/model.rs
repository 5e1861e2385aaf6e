//! A request and its response.

use std::time::Duration;

use bytes::Bytes;

use crate::session_operation::ByteStream;

/// One HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurlRequest {
    /// The absolute URL, `http` or `https`.
    pub url: String,
    /// The method: a token, in upper case if it is a standard one.
    pub method: String,
    /// The headers, which replace or extend those of the browser. They may contain secrets.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Bytes>,
    /// The timeout for the head of the response.
    pub within: Duration,
}

/// The response.
pub struct CurlAnswer {
    /// The status. Redirects are not followed.
    pub status: u16,
    /// The headers; a name is repeated for each value.
    pub headers: Vec<(String, String)>,
    /// The decoded body; redirects have none.
    pub body: ByteStream,
}
