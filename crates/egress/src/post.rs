//! Requests with a body, of the server itself, to addresses that callers have chosen.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use tokio::time::timeout;
use url::Url;

use crate::{
    fetch::{FetchError, connection_error, send_request},
    session::Egress,
    target::Target,
};

impl Egress {
    /// Sends a request with its method, headers and body to `url`, and returns the whole response. The host is resolved,
    /// checked and dialled like a session's. Redirects are not followed, because the headers are for this host only.
    ///
    /// # Errors
    /// See [`FetchError`]; [`FetchError::TooLong`] if the response has more than `max_bytes`, [`FetchError::Silent`] if
    /// it is not complete after `within`.
    pub async fn post(
        &self,
        url: &Url,
        request: Request<Bytes>,
        max_bytes: usize,
        within: Duration,
    ) -> Result<Response<Bytes>, FetchError> {
        let exchange = async {
            let build = |target: &Target| addressed(url, target, request);
            let (answer, _driver) = send_request(&self.upstream(), url, build).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, max_bytes).collect().await.map_err(|error| {
                match error.is::<LengthLimitError>() {
                    true => FetchError::TooLong(max_bytes),
                    false => connection_error(&*error),
                }
            })?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        timeout(within, exchange).await.map_err(|_| FetchError::Silent)?
    }

    /// Returns whether the host of `url` is known and has an address that the rules allow.
    pub async fn may_reach(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let Ok(target) = Target::parse(host, url.port_or_known_default()) else { return false };
        self.upstream().candidates(&target).await.is_ok()
    }
}

/// Returns the request in the form for a connection to `target`.
fn addressed(url: &Url, target: &Target, request: Request<Bytes>) -> Result<Request<Full<Bytes>>, FetchError> {
    let (host, path) = target.host_and_path(url);
    let (mut head, body) = request.into_parts();
    head.uri = path.parse().map_err(|_| FetchError::BadAddress)?;
    let host = HeaderValue::try_from(host.to_string()).map_err(|error| connection_error(&error))?;
    head.headers.insert(header::HOST, host);
    Ok(Request::from_parts(head, Full::new(body)))
}
