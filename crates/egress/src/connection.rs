//! One connection from a sandbox: a sequence of requests, or one tunnel.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use http::{
    Method, Request, Response, StatusCode, Uri, Version,
    header::{HeaderValue, PROXY_AUTHORIZATION},
    request::Parts,
};
use http_body_util::{Either, Empty};
use hyper::{
    body::{Body as _, Incoming},
    client::conn::http1::SendRequest,
    server::conn::http1,
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::{Mutex, MutexGuard};
use tokio::{io::copy_bidirectional_with_sizes, net::UnixStream, sync::watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    counted_stream::{Activity, CountedStream},
    fault::ProxyFault,
    headers,
    policy::{CurrentPolicy, Denial},
    proxy::{Io, Proxy},
    responses::{self, Body, RequestBody},
    session::Session,
    target::Target,
    upstream::{ConnectError, Upstream, UpstreamPath},
};

/// hyper's lower bound for the buffer of a connection, in bytes.
const MIN_BUFFER_BYTES: usize = 8192;
/// The maximum number of headers of a response; some origins set very many cookies.
const MAX_RESPONSE_HEADERS: usize = 512;

/// Serves one connection until it ends or exceeds the idle timeout.
pub(crate) async fn serve(session: Arc<Session>, stream: UnixStream) {
    let activity = Arc::new(Activity::now());
    let io = TokioIo::new(CountedStream::new(stream, Arc::clone(&activity), Arc::clone(&session.counters)));
    let _open = session.counters.open_connection();
    let policy_changes = session.policy_changes();
    let connection = Arc::new(Connection::new(Arc::clone(&session)));
    let service = service_fn(|request| {
        let connection = Arc::clone(&connection);
        async move { connection.answer(request).await }
    });
    let head_bytes = session.limits.head_bytes.max(MIN_BUFFER_BYTES);
    let serving = async {
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(session.limits.head_timeout)
            .max_buf_size(head_bytes)
            .preserve_header_case(true)
            // The origin's date passes through, and the fixed responses must not vary with time.
            .auto_date_header(false)
            .serve_connection(io, service)
            .with_upgrades()
            .await;
        match served {
            Ok(()) => connection.tunnel().await,
            Err(error) => tracing::debug!(%error, "a connection failed"),
        }
    };
    tokio::select! {
        () = serving => {}
        () = connection.until_denied(policy_changes) => {
            tracing::debug!("closed a connection to a destination that is no longer allowed");
        }
        () = activity.idle_for(session.limits.idle_timeout) => tracing::debug!("closed an idle connection"),
    }
}

struct Connection {
    session: Arc<Session>,
    /// The destination of the last request.
    target: Mutex<Option<Target>>,
    reusable_connection: Mutex<Option<OriginConnection>>,
    tunnel: Mutex<Option<Tunnel>>,
}

/// An open connection to an origin that may carry the next request too.
struct OriginConnection {
    target: Target,
    /// The proxy of the connection, if it has one.
    proxy: Option<Arc<Proxy>>,
    address: SocketAddr,
    sender: SendRequest<RequestBody>,
    _driver: AbortOnDropHandle<()>,
}

struct Tunnel {
    inside: OnUpgrade,
    outside: Box<dyn Io>,
    /// Cancelled when the session's routes are replaced, which ends the tunnel.
    replaced: CancellationToken,
}

impl Connection {
    fn new(session: Arc<Session>) -> Self {
        Self { session, target: Mutex::new(None), reusable_connection: Mutex::new(None), tunnel: Mutex::new(None) }
    }

    /// Answers one request. Checks every request, independent of earlier requests on this connection.
    ///
    /// # Errors
    /// [`NoResponse`], upon which the connection closes.
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, NoResponse> {
        self.session.counters.requests.fetch_add(1, Relaxed);
        let method = request.method().clone();
        let outcome =
            if request.method() == Method::CONNECT { self.connect(request).await } else { self.forward(request).await };
        // A client that waits for the answer to a CONNECT takes any failure as one. A response to another request would be
        // a page to it.
        let unreachable = || if method == Method::CONNECT { Ok(responses::unreachable()) } else { Err(NoResponse) };
        Ok(match outcome {
            Ok(response) => response,
            Err(RequestError::Malformed) => responses::malformed(),
            Err(RequestError::ConnectError(ConnectError::Unreachable)) => unreachable()?,
            Err(RequestError::ConnectError(ConnectError::ProxyDown(fault))) => {
                self.session.report_proxy_down(fault);
                responses::proxy_down(fault)
            }
            Err(RequestError::ConnectError(ConnectError::RefusedAddress)) => {
                self.session.counters.refused.fetch_add(1, Relaxed);
                unreachable()?
            }
            Err(RequestError::ConnectError(ConnectError::Denied)) => {
                self.session.counters.refused.fetch_add(1, Relaxed);
                self.report_denied(&method);
                responses::denied()
            }
            Err(RequestError::ConnectError(ConnectError::Refused)) => {
                self.session.counters.refused.fetch_add(1, Relaxed);
                responses::refused()
            }
        })
    }

    fn report_denied(&self, method: &Method) {
        if let Some(target) = &*lock(&self.target) {
            let (host, method) = (target.host.to_string(), method.as_str().to_owned());
            self.session.report_denied(Denial { host, port: target.port, method });
        }
    }

    /// Waits until a change of the policy denies the destination of the last request. A change that comes while that
    /// request reads the policy is noticed here too.
    async fn until_denied(&self, mut changes: watch::Receiver<CurrentPolicy>) {
        while changes.changed().await.is_ok() {
            let policy = changes.borrow_and_update().clone();
            let is_denied = |target: &Target| matches!(policy.route_to(target), Err(ConnectError::Denied));
            if lock(&self.target).as_ref().is_some_and(is_denied) {
                return;
            }
        }
        std::future::pending().await
    }

    async fn connect(&self, request: Request<Incoming>) -> Result<Response<Body>, RequestError> {
        let authority = request.uri().authority().ok_or(RequestError::Malformed)?;
        let target = Target::parse(authority.as_str(), None).map_err(|_| ConnectError::Refused)?;
        drop(lock(&self.reusable_connection).take());
        *lock(&self.target) = Some(target.clone());
        let (outside, replaced) = self.open_tunnel(&target).await?;
        *lock(&self.tunnel) = Some(Tunnel { inside: hyper::upgrade::on(request), outside, replaced });
        Ok(responses::connected())
    }

    /// Opens a connection to `target` under the current policy; begins again if the routes are replaced meanwhile. Also
    /// returns the token that is cancelled when the routes are replaced later.
    async fn open_tunnel(&self, target: &Target) -> Result<(Box<dyn Io>, CancellationToken), ConnectError> {
        loop {
            let policy = self.session.policy();
            let opening = async {
                let route = policy.route_to(target)?;
                let upstream_path = policy.upstream.upstream_path(&route, target).await?;
                policy.upstream.open(&upstream_path, target).await
            };
            let replaced = policy.replaced.clone();
            if let Some(opened) = replaced.run_until_cancelled(opening).await {
                return opened.map(|(outside, _)| (outside, replaced));
            }
        }
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>, RequestError> {
        let target = plain_http_target(request.uri())?;
        *lock(&self.target) = Some(target.clone());
        let (head, body) = request.into_parts();
        // A reused connection may close while a request is in transit, so only repeatable requests use one.
        let repeatable = head.method.is_safe() && body.is_end_stream();
        let reusable_connection = lock(&self.reusable_connection).take().filter(|_| repeatable);
        if let Some(reusable_connection) = reusable_connection
            && self.may_reuse(&reusable_connection, &target).await?
        {
            let head = origin_head(head.clone(), &target, reusable_connection.proxy.as_ref())?;
            let retry = Request::from_parts(head, Either::Right(Empty::new()));
            if let Ok(response) = self.send(reusable_connection, retry).await {
                return Ok(response);
            }
        }
        let new_connection = self.open_connection(&target).await?;
        let head = origin_head(head, &target, new_connection.proxy.as_ref())?;
        let body = if body.is_end_stream() { Either::Right(Empty::new()) } else { Either::Left(body) };
        self.send(new_connection, Request::from_parts(head, body)).await
    }

    /// Opens a connection for a plain request under the current policy; begins again if the routes are replaced meanwhile.
    async fn open_connection(&self, target: &Target) -> Result<OriginConnection, RequestError> {
        loop {
            let policy = self.session.policy();
            let opening = async {
                let upstream_path = policy.upstream.upstream_path(&policy.route_to(target)?, target).await?;
                self.dial(&policy.upstream, target.clone(), &upstream_path).await
            };
            if let Some(opened) = policy.replaced.run_until_cancelled(opening).await {
                return opened;
            }
        }
    }

    /// Returns whether a request for `target` may use this connection: under the current policy it would be dialled alike.
    async fn may_reuse(&self, connection: &OriginConnection, target: &Target) -> Result<bool, ConnectError> {
        if connection.target != *target || connection.sender.is_closed() {
            return Ok(false);
        }
        let policy = self.session.policy();
        let upstream_path = policy.upstream.upstream_path(&policy.route_to(target)?, target).await?;
        let same_way = match (&connection.proxy, upstream_path.proxy()) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        Ok(same_way && upstream_path.candidates().contains(&connection.address))
    }

    async fn dial(
        &self,
        upstream: &Upstream,
        target: Target,
        upstream_path: &UpstreamPath,
    ) -> Result<OriginConnection, RequestError> {
        let by_proxy = upstream_path.proxy().is_some_and(|proxy| proxy.is_http());
        let (stream, address) = if by_proxy {
            upstream.connect_next_hop(upstream_path).await?
        } else {
            upstream.open(upstream_path, &target).await?
        };
        let handshake = hyper::client::conn::http1::Builder::new()
            .max_buf_size(self.session.limits.head_bytes.max(MIN_BUFFER_BYTES))
            .max_headers(MAX_RESPONSE_HEADERS)
            .preserve_header_case(true)
            // For the headers that the client did not send.
            .title_case_headers(true)
            .handshake(TokioIo::new(stream));
        let (sender, driver) = handshake.await.map_err(|_| ConnectError::Unreachable)?;
        let driver = self.session.spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to an origin failed");
            }
        });
        Ok(OriginConnection { target, proxy: upstream_path.proxy().cloned(), address, sender, _driver: driver })
    }

    async fn send(
        &self,
        mut reusable_connection: OriginConnection,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, RequestError> {
        let sent = async {
            reusable_connection.sender.ready().await?;
            reusable_connection.sender.send_request(request).await
        };
        let by_proxy = reusable_connection.proxy.as_ref().is_some_and(|proxy| proxy.is_http());
        let response = sent.await.map_err(|error| {
            tracing::debug!(%error, by_proxy, "the origin or proxy sent no response");
            // An HTTP proxy that does not answer is a proxy fault; otherwise the origin is unreachable.
            if by_proxy { ConnectError::ProxyDown(ProxyFault::from_http(&error)) } else { ConnectError::Unreachable }
        })?;
        *lock(&self.reusable_connection) = Some(reusable_connection);
        if by_proxy && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            return Err(ConnectError::ProxyDown(ProxyFault::Authentication).into());
        }
        session_response(response)
    }

    /// If the last request was a CONNECT, copies in both directions until both sides end or the route is replaced.
    async fn tunnel(&self) {
        let Some(Tunnel { inside, mut outside, replaced }) = lock(&self.tunnel).take() else { return };
        let Ok(inside) = inside.await else { return };
        let mut inside = TokioIo::new(inside);
        let buffer = self.session.limits.tunnel_buffer;
        let copying = copy_bidirectional_with_sizes(&mut inside, &mut outside, buffer, buffer);
        match replaced.run_until_cancelled(copying).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => tracing::debug!(%error, "a tunnel failed"),
            None => tracing::debug!("closed a tunnel because the session has another route"),
        }
    }
}

/// The destination of a plain request could not be reached: its connection closes without a response, as that of a server that
/// ended would, so that a browser reports an error.
#[derive(Debug, thiserror::Error)]
#[error("the destination could not be reached")]
struct NoResponse;

/// The reason for a fixed response, or for none.
enum RequestError {
    Malformed,
    ConnectError(ConnectError),
}

impl From<ConnectError> for RequestError {
    fn from(no_way: ConnectError) -> Self {
        Self::ConnectError(no_way)
    }
}

fn plain_http_target(uri: &Uri) -> Result<Target, RequestError> {
    let scheme = uri.scheme().ok_or(RequestError::Malformed)?;
    let authority = uri.authority().ok_or(RequestError::Malformed)?;
    if !scheme.as_str().eq_ignore_ascii_case("http") {
        return Err(ConnectError::Refused.into());
    }
    Target::parse(authority.as_str(), Some(80)).map_err(|_| ConnectError::Refused.into())
}

/// Returns the head of a request as the origin gets it, or the proxy.
fn origin_head(mut head: Parts, target: &Target, proxy: Option<&Arc<Proxy>>) -> Result<Parts, RequestError> {
    let host = HeaderValue::try_from(target.to_host_header()).map_err(|_| RequestError::Malformed)?;
    head.headers = headers::for_origin(&head.headers, host);
    head.version = Version::HTTP_11;
    head.uri = match head.uri.into_parts().path_and_query {
        Some(path) => Uri::from(path),
        None => Uri::from_static("/"),
    };
    // An HTTP proxy gets the absolute URL, and its own credentials instead of those that the sandbox sent.
    if let Some(proxy) = proxy.filter(|proxy| proxy.is_http()) {
        let by_proxy = format!("http://{}{}", target.to_host_header(), head.uri);
        head.uri = Uri::try_from(by_proxy).map_err(|_| RequestError::Malformed)?;
        if let Some(authorization) = proxy.authorization() {
            head.headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
    }
    Ok(head)
}

fn session_response(response: Response<Incoming>) -> Result<Response<Body>, RequestError> {
    let (mut head, body) = response.into_parts();
    // Neither status is legitimate from an origin: no upgrade was requested, and an origin is not the session's proxy.
    // A browser would ask its user for that proxy's password.
    if [StatusCode::SWITCHING_PROTOCOLS, StatusCode::PROXY_AUTHENTICATION_REQUIRED].contains(&head.status) {
        return Err(ConnectError::Unreachable.into());
    }
    head.headers = headers::for_session(&head.headers);
    head.version = Version::HTTP_11;
    Ok(Response::from_parts(head, Either::Left(body)))
}

fn lock<T>(slot: &Mutex<T>) -> MutexGuard<'_, T> {
    slot.lock()
}
