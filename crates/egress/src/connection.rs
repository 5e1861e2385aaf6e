//! One connection from inside a session: its requests one after the other, or one tunnel.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
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
use tokio::{io::copy_bidirectional_with_sizes, net::UnixStream};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    counted_stream::{Activity, CountedStream},
    fault::ProxyFault,
    headers,
    proxy::{Io, Proxy},
    responses::{self, Body, Sent},
    session::{CurrentRoute, Session},
    target::Target,
    upstream::{ConnectError, UpstreamPath},
};

/// hyper's lower bound for the buffer of a connection, in bytes.
const SMALLEST_BUFFER: usize = 8192;
/// Headers of an answer; some origins set a great many cookies.
const MOST_ANSWER_HEADERS: usize = 512;

/// Serves one connection until it ends or nothing has moved on it for too long.
pub(crate) async fn serve(session: Arc<Session>, stream: UnixStream) {
    let activity = Arc::new(Activity::now());
    let io = TokioIo::new(CountedStream::new(stream, Arc::clone(&activity), Arc::clone(&session.counters)));
    let _open = session.counters.open_connection();
    let connection = Arc::new(Connection::new(Arc::clone(&session)));
    let service = service_fn(|request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, Infallible>(connection.answer(request).await) }
    });
    let head_bytes = session.limits.head_bytes.max(SMALLEST_BUFFER);
    let serving = async {
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(session.limits.head_timeout)
            .max_buf_size(head_bytes)
            .preserve_header_case(true)
            // The origin's date passes through, and our own answers are the same bytes at any time.
            .auto_date_header(false)
            .serve_connection(io, service)
            .with_upgrades()
            .await;
        match served {
            Ok(()) => connection.tunnel().await,
            Err(error) => tracing::debug!(%error, "a connection ended early"),
        }
    };
    tokio::select! {
        () = serving => {}
        () = activity.idle_for(session.limits.idle_timeout) => tracing::debug!("a connection was idle for too long"),
    }
}

struct Connection {
    session: Arc<Session>,
    kept: Mutex<Option<Kept>>,
    tunnel: Mutex<Option<Tunnel>>,
}

/// A connection to an origin that may carry the next request too.
struct Kept {
    target: Target,
    /// What it goes through.
    proxy: Option<Arc<Proxy>>,
    address: SocketAddr,
    sender: SendRequest<Sent>,
    _driver: AbortOnDropHandle<()>,
}

struct Tunnel {
    inside: OnUpgrade,
    outside: Box<dyn Io>,
    /// Ends it: the session has another route.
    replaced: CancellationToken,
}

impl Connection {
    fn new(session: Arc<Session>) -> Self {
        Self { session, kept: Mutex::new(None), tunnel: Mutex::new(None) }
    }

    /// Answers one request. Whatever went before on this connection has no say in whether it may pass.
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.session.counters.requests.fetch_add(1, Relaxed);
        let outcome =
            if request.method() == Method::CONNECT { self.connect(request).await } else { self.pass_on(request).await };
        match outcome {
            Ok(response) => response,
            Err(Failed::Malformed) => responses::malformed(),
            Err(Failed::ConnectError(ConnectError::Unreachable)) => responses::unreachable(),
            Err(Failed::ConnectError(ConnectError::ProxyDown(fault))) => {
                self.session.proxy_is_down(fault);
                responses::proxy_down(fault)
            }
            Err(Failed::ConnectError(ConnectError::RefusedAddress)) => {
                self.session.counters.refused.fetch_add(1, Relaxed);
                responses::unreachable()
            }
            Err(Failed::ConnectError(ConnectError::Refused)) => {
                self.session.counters.refused.fetch_add(1, Relaxed);
                responses::refused()
            }
        }
    }

    async fn connect(&self, request: Request<Incoming>) -> Result<Response<Body>, Failed> {
        let authority = request.uri().authority().ok_or(Failed::Malformed)?;
        let target = Target::parse(authority.as_str(), None).map_err(|_| ConnectError::Refused)?;
        drop(lock(&self.kept).take());
        let (outside, replaced) = self.open_tunnel(&target).await?;
        *lock(&self.tunnel) = Some(Tunnel { inside: hyper::upgrade::on(request), outside, replaced });
        Ok(responses::connected())
    }

    /// A connection to `target` by the route that is in force once it stands, and what is cancelled when that is replaced.
    async fn open_tunnel(&self, target: &Target) -> Result<(Box<dyn Io>, CancellationToken), ConnectError> {
        loop {
            let CurrentRoute { route, replaced } = self.session.route();
            let opening = async {
                let way = self.session.upstream.way(&route, target).await?;
                self.session.upstream.open(&way, target).await
            };
            if let Some(opened) = replaced.run_until_cancelled(opening).await {
                return opened.map(|(outside, _)| (outside, replaced));
            }
        }
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Result<Response<Body>, Failed> {
        let target = plain_http_target(request.uri())?;
        let way = self.session.upstream.way(&self.session.route().route, &target).await?;
        let (head, body) = outgoing(request, &target, &way)?;
        // A kept connection may close under a request that is on its way; only one that can be sent again risks that.
        let repeatable = head.method.is_safe() && body.is_end_stream();
        if let Some(kept) = self.take_kept(&target, &way).filter(|_| repeatable) {
            let again = Request::from_parts(head.clone(), Either::Right(Empty::new()));
            if let Ok(response) = self.send(kept, again).await {
                return Ok(response);
            }
        }
        let kept = self.dial(target, &way).await?;
        let body = if body.is_end_stream() { Either::Right(Empty::new()) } else { Either::Left(body) };
        self.send(kept, Request::from_parts(head, body)).await
    }

    /// The kept connection, if this request may go where it leads; else it is closed.
    fn take_kept(&self, target: &Target, way: &UpstreamPath) -> Option<Kept> {
        let kept = lock(&self.kept).take();
        let same_way = |kept: &Kept| match (&kept.proxy, way.proxy()) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        let kept = kept.filter(|kept| kept.target == *target && same_way(kept));
        kept.filter(|kept| way.candidates().contains(&kept.address) && !kept.sender.is_closed())
    }

    async fn dial(&self, target: Target, way: &UpstreamPath) -> Result<Kept, Failed> {
        let whole = way.proxy().is_some_and(|proxy| proxy.is_http());
        let upstream = &self.session.upstream;
        let (stream, address) = if whole { upstream.reach(way).await? } else { upstream.open(way, &target).await? };
        let handshake = hyper::client::conn::http1::Builder::new()
            .max_buf_size(self.session.limits.head_bytes.max(SMALLEST_BUFFER))
            .max_headers(MOST_ANSWER_HEADERS)
            .preserve_header_case(true)
            .handshake(TokioIo::new(stream));
        let (sender, driver) = handshake.await.map_err(|_| ConnectError::Unreachable)?;
        let driver = self.session.spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to an origin ended early");
            }
        });
        Ok(Kept { target, proxy: way.proxy().cloned(), address, sender, _driver: driver })
    }

    async fn send(&self, mut kept: Kept, request: Request<Sent>) -> Result<Response<Body>, Failed> {
        let sent = async {
            kept.sender.ready().await?;
            kept.sender.send_request(request).await
        };
        let whole = kept.proxy.as_ref().is_some_and(|proxy| proxy.is_http());
        let response = sent.await.map_err(|error| {
            tracing::debug!(%error, whole, "no answer");
            // What is no answer at all is the word of whoever is at the other end.
            if whole { ConnectError::ProxyDown(ProxyFault::of_http(&error)) } else { ConnectError::Unreachable }
        })?;
        *lock(&self.kept) = Some(kept);
        if whole && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            return Err(ConnectError::ProxyDown(ProxyFault::Authentication).into());
        }
        incoming(response)
    }

    /// Copies both ways until both sides are done or the session has another route, if the last request asked for a tunnel.
    async fn tunnel(&self) {
        let Some(Tunnel { inside, mut outside, replaced }) = lock(&self.tunnel).take() else { return };
        let Ok(inside) = inside.await else { return };
        let mut inside = TokioIo::new(inside);
        let buffer = self.session.limits.tunnel_buffer;
        let copying = copy_bidirectional_with_sizes(&mut inside, &mut outside, buffer, buffer);
        match replaced.run_until_cancelled(copying).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => tracing::debug!(%error, "a tunnel ended early"),
            None => tracing::debug!("a tunnel was cut: the session has another route"),
        }
    }
}

/// Why a request gets one of the fixed answers.
enum Failed {
    Malformed,
    ConnectError(ConnectError),
}

impl From<ConnectError> for Failed {
    fn from(no_way: ConnectError) -> Self {
        Self::ConnectError(no_way)
    }
}

fn plain_http_target(uri: &Uri) -> Result<Target, Failed> {
    let scheme = uri.scheme().ok_or(Failed::Malformed)?;
    let authority = uri.authority().ok_or(Failed::Malformed)?;
    if !scheme.as_str().eq_ignore_ascii_case("http") {
        return Err(ConnectError::Refused.into());
    }
    Target::parse(authority.as_str(), Some(80)).map_err(|_| ConnectError::Refused.into())
}

fn outgoing(request: Request<Incoming>, target: &Target, way: &UpstreamPath) -> Result<(Parts, Incoming), Failed> {
    let (mut head, body) = request.into_parts();
    let host = HeaderValue::try_from(target.to_host_header()).map_err(|_| Failed::Malformed)?;
    head.headers = headers::for_origin(&head.headers, host);
    head.version = Version::HTTP_11;
    head.uri = match head.uri.into_parts().path_and_query {
        Some(path) => Uri::from(path),
        None => Uri::from_static("/"),
    };
    // An HTTP proxy is told the whole address; its credentials are put in behind what came from inside.
    if let Some(proxy) = way.proxy().filter(|proxy| proxy.is_http()) {
        let whole = format!("http://{}{}", target.to_host_header(), head.uri);
        head.uri = Uri::try_from(whole).map_err(|_| Failed::Malformed)?;
        if let Some(authorization) = proxy.authorization() {
            head.headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
    }
    Ok((head, body))
}

fn incoming(response: Response<Incoming>) -> Result<Response<Body>, Failed> {
    let (mut head, body) = response.into_parts();
    // Neither can come from an honest origin here: nobody asked it to switch, and it is not the session's proxy, for
    // whose password a browser would ask the person in front of it.
    if [StatusCode::SWITCHING_PROTOCOLS, StatusCode::PROXY_AUTHENTICATION_REQUIRED].contains(&head.status) {
        return Err(ConnectError::Unreachable.into());
    }
    head.headers = headers::for_session(&head.headers);
    head.version = Version::HTTP_11;
    Ok(Response::from_parts(head, Either::Left(body)))
}

fn lock<T>(slot: &Mutex<T>) -> MutexGuard<'_, T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
