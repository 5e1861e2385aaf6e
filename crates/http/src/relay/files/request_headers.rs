//! The headers of requests as the server gets them.
//!
//! Chromium sends a plain HTTP request to the egress proxy with `Proxy-Connection` instead of `Connection`. The egress
//! proxy sends `Connection`, and a client reads the same in the event.

use memchr::memmem;

/// The header as Chromium serializes it. Within a string its quotes would be escaped.
const OF_PROXY: &[u8] = br#""Proxy-Connection":"keep-alive""#;
const OF_SERVER: &[u8] = br#""Connection":"keep-alive""#;

/// Returns an event with the headers that the server gets; `None` if these are the same.
pub(super) fn as_received(event: &[u8]) -> Option<Vec<u8>> {
    let at = memmem::find(event, OF_PROXY)?;
    Some([&event[..at], OF_SERVER, &event[at + OF_PROXY.len()..]].concat())
}
