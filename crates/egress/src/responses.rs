//! What the session hears from us. Each answer is fixed to the byte: it must not tell an open port from a closed one, an
//! address from another, or anything about this machine.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::{Either, Empty, Full};
use hyper::body::Incoming;

use crate::fault::ProxyFault;

/// Says which of the proxies on the way an answer is of, and what is wrong (RFC 9209). An origin's own does not pass, so that over plain
/// HTTP the inside can tell our answers from those of an origin.
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// An answer's body: the origin's, or a fixed one.
pub(crate) type Body = Either<Incoming, Full<Bytes>>;
/// A request's body: the session's, or none.
pub(crate) type Sent = Either<Incoming, Empty<Bytes>>;

/// The rules do not let this through.
pub(crate) fn refused() -> Response<Body> {
    fixed(StatusCode::FORBIDDEN, "casement; error=http_request_denied", "This destination is not allowed.\n")
}

/// Nobody answers there, or with something that is not HTTP; or the rules do not let an address through that was found here.
pub(crate) fn unreachable() -> Response<Body> {
    fixed(
        StatusCode::BAD_GATEWAY,
        "casement; error=destination_unavailable",
        "This destination could not be reached, or is not allowed.\n",
    )
}

/// The session's proxy cannot be used.
pub(crate) fn proxy_down(fault: ProxyFault) -> Response<Body> {
    let (status, text) = fault.told();
    fixed(StatusCode::BAD_GATEWAY, status, text)
}

/// Not a request to a proxy.
pub(crate) fn malformed() -> Response<Body> {
    fixed(
        StatusCode::BAD_REQUEST,
        "casement; error=http_request_error",
        "This is not a request that a proxy can pass on.\n",
    )
}

/// The tunnel stands.
pub(crate) fn connected() -> Response<Body> {
    Response::new(Either::Right(Full::default()))
}

fn fixed(status: StatusCode, proxy_status: &'static str, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from_static(text.as_bytes()))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(PROXY_STATUS, HeaderValue::from_static(proxy_status));
    response
}
