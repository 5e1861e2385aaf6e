//! Checks that a proxy works.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Url};

use crate::{
    fault::ProxyFault,
    proxy::{Io, Proxy, Refused, Route},
    session::Egress,
    target::Target,
    upstream::{ConnectError, Upstream},
};

const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest response body that is read: enough for an IP address and whitespace around it.
const MAX_RESPONSE_BYTES: usize = 4096;
/// A name that does not exist. A proxy that reports that has understood the request and accepted the credentials.
const UNKNOWN_NAME: &str = "casement-check.invalid";

/// The result of a proxy check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyCheck {
    /// The proxy answers and accepts the credentials. If a URL was given, it could be read through the proxy. The value
    /// is the IP address in the response body, if the body is one.
    Available(Option<IpAddr>),
    /// The proxy does not work, for this reason. Without a reason, the URL could not be read through it.
    Unavailable(Option<ProxyFault>),
    /// The rules refuse the URL.
    Blocked,
}

impl Egress {
    /// Checks a proxy, with a timeout of 10 s. Reads `url` through the proxy; without a `url`, requests a name that
    /// does not exist.
    pub async fn check_proxy(&self, proxy: &Arc<Proxy>, url: Option<&Url>) -> ProxyCheck {
        let upstream = self.upstream();
        let check = async {
            match url {
                Some(url) => read(&upstream, proxy, url).await,
                None => ask(&upstream, proxy).await,
            }
        };
        match timeout(CHECK_TIMEOUT, check).await {
            Ok(Ok(found)) => found,
            Ok(Err(ConnectError::Refused)) => ProxyCheck::Blocked,
            Ok(Err(ConnectError::ProxyDown(fault))) => ProxyCheck::Unavailable(Some(fault)),
            Ok(Err(ConnectError::RefusedAddress | ConnectError::Unreachable | ConnectError::Denied)) => {
                ProxyCheck::Unavailable(None)
            }
            Err(_) => ProxyCheck::Unavailable(Some(ProxyFault::Timeout)),
        }
    }
}

async fn ask(upstream: &Upstream, proxy: &Arc<Proxy>) -> Result<ProxyCheck, ConnectError> {
    let unknown_target = Target { host: Host::Domain(UNKNOWN_NAME.to_owned()), port: 443 };
    let stream = upstream.connect_to_proxy(proxy).await?;
    match upstream.with_proxy_timeout(proxy.tunnel(stream, &unknown_target)).await {
        Ok(_) | Err(Refused::Target) => Ok(ProxyCheck::Available(None)),
        Err(refused @ Refused::Proxy(_)) => Err(refused.into()),
    }
}

async fn read(upstream: &Upstream, proxy: &Arc<Proxy>, url: &Url) -> Result<ProxyCheck, ConnectError> {
    let secure = url.scheme() == "https";
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(ConnectError::Refused);
    };
    let target = Target::parse(host, Some(port)).map_err(|_| ConnectError::Refused)?;
    // The proxy resolves the name, as for a session's requests. Resolving it here would reveal the names of this
    // network.
    upstream.check_proxy_may_connect(&target)?;
    if !secure && proxy.is_http() {
        let stream = upstream.connect_to_proxy(proxy).await?;
        return get(stream, url, &target, Some(proxy)).await;
    }
    let upstream_path = upstream.upstream_path(&Route::Through(Arc::clone(proxy)), &target).await?;
    let (stream, _) = upstream.open(&upstream_path, &target).await?;
    if !secure {
        return get(stream, url, &target, None).await;
    }
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| ConnectError::Refused)?;
    let connector = upstream.trust.connector().map_err(|_| ConnectError::Unreachable)?;
    let stream = connector.connect(name, stream).await.map_err(|_| ConnectError::Unreachable)?;
    get(Box::new(stream), url, &target, None).await
}

/// Requests the document with a plain request, addressed to the proxy if one is given.
async fn get(
    stream: Box<dyn Io>,
    url: &Url,
    target: &Target,
    proxy: Option<&Arc<Proxy>>,
) -> Result<ProxyCheck, ConnectError> {
    let absolute_url = proxy.is_some();
    let to_error = |error: hyper::Error| {
        if absolute_url { ConnectError::ProxyDown(ProxyFault::from_http(&error)) } else { ConnectError::Unreachable }
    };
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(to_error)?;
    let _driver = AbortOnDropHandle::new(tokio::spawn(async move {
        let _ = driver.await;
    }));
    let (host, path) = target.host_and_path(url);
    let url_text = if absolute_url { format!("http://{host}{path}") } else { path };
    let mut request = Request::get(url_text).header(header::HOST, host).header(header::USER_AGENT, "casement");
    if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization()) {
        request = request.header(header::PROXY_AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| ConnectError::Unreachable)?;
    let answer = sender.send_request(request).await.map_err(to_error)?;
    if answer.status() == http::StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        return Ok(ProxyCheck::Unavailable(absolute_url.then_some(ProxyFault::Authentication)));
    }
    // A proxy reports with a 5xx status that it could not connect.
    if answer.status().is_server_error() {
        return Ok(ProxyCheck::Unavailable(None));
    }
    let body = Limited::new(answer.into_body(), MAX_RESPONSE_BYTES).collect().await.map(|body| body.to_bytes());
    let text = body.ok().and_then(|bytes| std::str::from_utf8(&bytes).ok().map(|text| text.trim().to_owned()));
    Ok(ProxyCheck::Available(text.and_then(|text| text.parse().ok())))
}
