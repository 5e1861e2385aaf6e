//! A request and its answer.

use std::time::Duration;

use bytes::Bytes;

use crate::session_operation::ByteStream;

/// One HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurlRequest {
    /// An absolute address, `http` or `https`.
    pub url: String,
    /// A token; in upper case where it is one of HTTP's own.
    pub method: String,
    /// In place of the browser's own, or besides them. May hold secrets.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Option<Bytes>,
    /// When the head of the answer must be there.
    pub within: Duration,
}

/// What came back.
pub struct CurlAnswer {
    /// The status. A redirect is not followed.
    pub status: u16,
    /// The headers; a name comes once per value.
    pub headers: Vec<(String, String)>,
    /// The body, decoded; of a redirect there is none.
    pub body: ByteStream,
}
