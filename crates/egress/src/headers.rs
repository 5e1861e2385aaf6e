//! Header filtering: removes hop-by-hop headers.

use crate::responses::PROXY_ERROR;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE},
};

/// Returns the request headers for the origin: in the same order, without hop-by-hop headers, with `Host` from the
/// target, and without information about the proxy or its client.
pub(crate) fn for_origin(headers: &HeaderMap, host: HeaderValue) -> HeaderMap {
    let mut outgoing = end_to_end(headers, Some(CONNECTION));
    // The proxy itself requests the body (100 Continue).
    outgoing.remove(EXPECT);
    // Keeps the position of a present `Host`.
    outgoing.insert(HOST, host);
    outgoing
}

/// Returns the response headers for the session.
pub(crate) fn for_session(headers: &HeaderMap) -> HeaderMap {
    end_to_end(headers, None)
}

/// Returns the headers without those for one connection. `Proxy-Connection: keep-alive` becomes `replacement`, in its place: a
/// browser that keeps connections without a proxy sends `Connection` there.
fn end_to_end(headers: &HeaderMap, replacement: Option<HeaderName>) -> HeaderMap {
    // If both headers are present, the length is wrong (request smuggling).
    let chunked = headers.contains_key(TRANSFER_ENCODING);
    let mut stored = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if let Some(replacement) = replacement.as_ref().filter(|_| name == "proxy-connection" && value == "keep-alive")
        {
            stored.insert(replacement.clone(), value.clone());
        }
        let dropped =
            is_hop_by_hop(name) || (chunked && name == CONTENT_LENGTH) || is_named_by_connection(headers, name);
        if !dropped {
            stored.append(name, value.clone());
        }
    }
    stored
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || name == "keep-alive"
        // Only this proxy may report its own errors.
        || name == PROXY_ERROR
        || name.as_str().starts_with("proxy-")
}

fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    let mut lists = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    lists.any(|list| list.split(',').any(|token| token.trim().eq_ignore_ascii_case(name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_end_to_end_headers_pass() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("accept", "*/*"),
            ("host", "lie.example"),
            ("x-kernel-proxy-error", "network_policy_denied"),
            ("connection", "keep-alive, X-Secret"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic eDp5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("cookie", "a=1"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let out = for_origin(&headers, HeaderValue::from_static("true.example"));
        let names: Vec<_> = out.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(
            names,
            [("accept", "*/*"), ("host", "true.example"), ("connection", "keep-alive"), ("cookie", "a=1")]
        );
    }
}
