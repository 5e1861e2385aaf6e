//! One HTTP request over a connection into a session.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;

use super::Upstream;

/// Sends a request over a new connection.
///
/// # Errors
/// The connection failed, or the response is not HTTP.
pub(crate) async fn exchange(upstream: Upstream, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(upstream)).await?;
    // The task ends with the sender and the response body, and so also when the client disconnects.
    actix_web::rt::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection into a session failed");
        }
    });
    sender.send_request(request).await
}
