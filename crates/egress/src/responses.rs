//! The fixed responses of the proxy. Each is constant to the byte, so that a sandbox cannot distinguish an open port
//! from a closed one, or one address from another, and learns nothing about this machine.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::{Either, Empty, Full};
use hyper::body::Incoming;

use crate::fault::ProxyFault;

/// The header that names the proxy that produced a response, and the error (RFC 9209). It is removed from responses of
/// origins, so that over plain HTTP a client can distinguish them from the proxy's own responses.
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// The header with the code of an error of the proxy, as clients of the hosted service know it. It is removed from
/// responses of origins too.
pub(crate) const PROXY_ERROR: HeaderName = HeaderName::from_static("x-kernel-proxy-error");
/// The code of a request that the session's policy refuses.
const POLICY_DENIED: &str = "network_policy_denied";

/// The body of a response: the origin's body, or a fixed one.
pub(crate) type Body = Either<Incoming, Full<Bytes>>;
/// The body of a request: the session's body, or none.
pub(crate) type RequestBody = Either<Incoming, Empty<Bytes>>;

/// The rules refuse the destination.
pub(crate) fn refused() -> Response<Body> {
    fixed(StatusCode::FORBIDDEN, "casement; error=http_request_denied", "This destination is not allowed.\n")
}

/// The session's policy refuses the destination.
pub(crate) fn denied() -> Response<Body> {
    let mut response = fixed(
        StatusCode::FORBIDDEN,
        "casement; error=http_request_denied; details=\"network_policy_denied\"",
        "The network configuration of this session does not allow this destination (network_policy_denied).\n",
    );
    response.headers_mut().insert(PROXY_ERROR, HeaderValue::from_static(POLICY_DENIED));
    response
}

/// The destination does not answer or does not use HTTP, or the rules refuse an address that was resolved here.
pub(crate) fn unreachable() -> Response<Body> {
    fixed(
        StatusCode::BAD_GATEWAY,
        "casement; error=destination_unavailable",
        "This destination could not be reached, or is not allowed.\n",
    )
}

/// The session's proxy cannot be used.
pub(crate) fn proxy_down(fault: ProxyFault) -> Response<Body> {
    let (status, text) = fault.response_parts();
    fixed(StatusCode::BAD_GATEWAY, status, text)
}

/// The request is not a proxy request.
pub(crate) fn malformed() -> Response<Body> {
    fixed(
        StatusCode::BAD_REQUEST,
        "casement; error=http_request_error",
        "This is not a request that a proxy can pass on.\n",
    )
}

/// The tunnel is established.
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
