//! Whether a proxy works.

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

/// How long a check may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// An address in an answer, with room around it.
const LONGEST_ANSWER: usize = 4096;
/// A name that nobody has: a proxy that says so has understood the question and taken the credentials.
const NOBODY: &str = "casement-check.invalid";

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyCheck {
    /// It answers and takes the credentials; through it the address could be read, if one was given, and maybe the answer was the
    /// address that others see.
    Available(Option<IpAddr>),
    /// It does not, for this reason; or without one the address could not be read through it.
    Unavailable(Option<ProxyFault>),
    /// The rules do not let the address be read.
    Blocked,
}

impl Egress {
    /// Whether the proxy works, within 10 s. With a `url`, whether that can be read through it; without, whether the proxy answers a
    /// request for a name that nobody has.
    pub async fn check_proxy(&self, proxy: &Arc<Proxy>, url: Option<&Url>) -> ProxyCheck {
        let upstream = self.upstream();
        let check = async {
            match url {
                Some(url) => read(&upstream, proxy, url).await,
                None => ask(&upstream, proxy).await,
            }
        };
        match timeout(PATIENCE, check).await {
            Ok(Ok(found)) => found,
            Ok(Err(ConnectError::Refused)) => ProxyCheck::Blocked,
            Ok(Err(ConnectError::ProxyDown(fault))) => ProxyCheck::Unavailable(Some(fault)),
            Ok(Err(ConnectError::RefusedAddress | ConnectError::Unreachable)) => ProxyCheck::Unavailable(None),
            Err(_) => ProxyCheck::Unavailable(Some(ProxyFault::Timeout)),
        }
    }
}

async fn ask(upstream: &Upstream, proxy: &Arc<Proxy>) -> Result<ProxyCheck, ConnectError> {
    let nobody = Target { host: Host::Domain(NOBODY.to_owned()), port: 443 };
    let stream = upstream.connect_to_proxy(proxy).await?;
    match upstream.with_proxy_timeout(proxy.tunnel(stream, &nobody)).await {
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
    // As of a session's requests: the name is the proxy's to look up. Looked up here, it would tell the names that this network knows.
    upstream.check_proxy_may_connect(&target)?;
    if !secure && proxy.is_http() {
        let stream = upstream.connect_to_proxy(proxy).await?;
        return get(stream, url, &target, Some(proxy)).await;
    }
    let way = upstream.way(&Route::Through(Arc::clone(proxy)), &target).await?;
    let (stream, _) = upstream.open(&way, &target).await?;
    if !secure {
        return get(stream, url, &target, None).await;
    }
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| ConnectError::Refused)?;
    let connector = upstream.trust.connector().map_err(|_| ConnectError::Unreachable)?;
    let stream = connector.connect(name, stream).await.map_err(|_| ConnectError::Unreachable)?;
    get(Box::new(stream), url, &target, None).await
}

/// Asks for the document, the proxy itself if that is given.
async fn get(
    stream: Box<dyn Io>,
    url: &Url,
    target: &Target,
    proxy: Option<&Arc<Proxy>>,
) -> Result<ProxyCheck, ConnectError> {
    let whole_url = proxy.is_some();
    let broke = |error: hyper::Error| {
        if whole_url { ConnectError::ProxyDown(ProxyFault::of_http(&error)) } else { ConnectError::Unreachable }
    };
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let _driver = AbortOnDropHandle::new(tokio::spawn(async move {
        let _ = driver.await;
    }));
    let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let default_port = url.port().is_none();
    let host = if default_port { target.host.to_string() } else { format!("{}:{}", target.host, target.port) };
    let whole = if whole_url { format!("http://{host}{path}") } else { path };
    let mut request = Request::get(whole).header(header::HOST, host).header(header::USER_AGENT, "casement");
    if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization()) {
        request = request.header(header::PROXY_AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| ConnectError::Unreachable)?;
    let answer = sender.send_request(request).await.map_err(broke)?;
    if answer.status() == http::StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        return Ok(ProxyCheck::Unavailable(whole_url.then_some(ProxyFault::Authentication)));
    }
    // A proxy says with these that it did not get there.
    if answer.status().is_server_error() {
        return Ok(ProxyCheck::Unavailable(None));
    }
    let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await.map(|whole| whole.to_bytes());
    let text = body.ok().and_then(|bytes| std::str::from_utf8(&bytes).ok().map(|text| text.trim().to_owned()));
    Ok(ProxyCheck::Available(text.and_then(|text| text.parse().ok())))
}
