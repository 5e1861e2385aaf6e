//! HTTP/2: each request of a connection is served like an HTTP/1.1 request on a connection of its own.
//!
//! So there is one path for all requests: limits of heads, error bodies, timeouts and disconnected clients are handled
//! as for HTTP/1.1. A client that cancels a request closes that connection, and the handler ends at once.

use std::{
    cell::Cell,
    future::poll_fn,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use actix_http::error::DispatchError;
use actix_service::Service;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Method, Request, Response, StatusCode, Uri, Version,
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http1,
    header::{self, HeaderMap, HeaderValue},
    rt::Executor,
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::Notify, time::timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use crate::{accept::Acceptor, plain_errors::Connection, transport::Transport, waits::Wait};

/// The maximum number of concurrent requests of a connection.
const MAX_STREAMS: u32 = 100;
/// The maximum size of the head of a request, in bytes; the same as for HTTP/1.1.
const MAX_HEAD_BYTES: u32 = 128 << 10;
/// The interval of pings, and the time that a client has to answer one.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// The maximum idle time of a connection without a request; the same as for HTTP/1.1.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The time that an idle client has to close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of buffered bytes of a request, and of a response, in each of the buffers on its way.
const PIPE_BYTES: usize = 64 << 10;

/// Serves an HTTP/2 connection to its end.
pub(crate) async fn serve<S>(stream: TlsStream<TcpStream>, peer: Option<SocketAddr>, acceptor: Acceptor, http: Rc<S>)
where
    S: Service<(Connection, Option<SocketAddr>), Response = (), Error = DispatchError> + 'static,
{
    let stopping = acceptor.stopping.clone();
    let idle = acceptor.waits.idle.clone();
    let wait = || idle.register(peer.map(|peer| peer.ip()), 1);
    let requests = Rc::new(OpenRequests::default());
    let opened = Rc::clone(&requests);
    let service = service_fn(move |request: Request<Incoming>| {
        let (acceptor, http, open) = (acceptor.clone(), Rc::clone(&http), opened.open());
        async move { exchange(request, peer, acceptor, http, open).await }
    });
    let connection = http2::Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES)
        .max_send_buf_size(PIPE_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = requests.idle(IDLE_TIMEOUT, wait) => None,
        () = stopping.cancelled() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            // A request that has arrived meanwhile is served to its end.
            tokio::select! {
                ended = connection => ended,
                () = requests.idle(CLOSE_TIMEOUT, wait) => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP/2 connection failed");
    }
}

/// Runs tasks on the thread of the connection.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

/// Counts the requests of a connection.
#[derive(Default)]
struct OpenRequests {
    count: Cell<usize>,
    changed: Notify,
}

impl OpenRequests {
    fn open(self: &Rc<Self>) -> OpenRequest {
        self.count.set(self.count.get() + 1);
        self.changed.notify_one();
        OpenRequest(Rc::clone(self))
    }

    /// Waits until there was no request for this time, or the connection must be closed to make room for others.
    async fn idle(&self, time: Duration, wait: impl Fn() -> Wait) {
        loop {
            let changed = self.changed.notified();
            if self.count.get() > 0 {
                changed.await;
                continue;
            }
            let wait = wait();
            let closed = poll_fn(|cx| if wait.is_closed(cx) { Poll::Ready(()) } else { Poll::Pending });
            tokio::select! {
                changed = timeout(time, changed) => if changed.is_err() { return },
                () = closed => return,
            }
        }
    }
}

/// An open request. Dropping it ends the request.
struct OpenRequest(Rc<OpenRequests>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.changed.notify_one();
    }
}

/// Serves one request by HTTP/1.1 on a pipe.
async fn exchange<S>(
    request: Request<Incoming>,
    peer: Option<SocketAddr>,
    acceptor: Acceptor,
    http: Rc<S>,
    open: OpenRequest,
) -> hyper::Result<Response<Either<ForwardedBody, Full<Bytes>>>>
where
    S: Service<(Connection, Option<SocketAddr>), Response = (), Error = DispatchError> + 'static,
{
    // Also the way to open a WebSocket over HTTP/2, which this server does not announce.
    if *request.method() == Method::CONNECT {
        return Ok(refused_connect());
    }
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    tokio::task::spawn_local(async move {
        if let Err(error) = acceptor.serve_http1(Transport::Pipe(theirs), peer, &http).await {
            tracing::debug!(%error, "a request over HTTP/2 failed");
        }
    });
    let (mut sender, connection) = http1::Builder::new().max_buf_size(PIPE_BYTES).handshake(TokioIo::new(ours)).await?;
    let connection = AbortOnDropHandle::new(tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a request over HTTP/2 was interrupted");
        }
    }));
    let response = sender.send_request(to_http1(request)).await?;
    let (mut head, body) = response.into_parts();
    head.version = Version::HTTP_2;
    head.headers.remove(header::CONNECTION);
    let body = ForwardedBody { body, _connection: connection, _open: open };
    Ok(Response::from_parts(head, Either::Left(body)))
}

fn refused_connect<B>() -> Response<Either<B, Full<Bytes>>> {
    let body = r#"{"code":"method_not_allowed","message":"this server is no proxy; WebSockets use HTTP/1.1"}"#;
    let mut response = Response::new(Either::Right(Full::from(body)));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE"));
    response
}

/// Converts a request to the form of HTTP/1.1.
fn to_http1(request: Request<Incoming>) -> Request<Incoming> {
    let (mut head, body) = request.into_parts();
    head.version = Version::HTTP_11;
    if let Some(authority) = head.uri.authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok())
        && head.headers.get(header::HOST) != Some(&authority)
    {
        // A second, different name is refused with the request.
        head.headers.append(header::HOST, authority);
    }
    head.uri = head.uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
    join_cookies(&mut head.headers);
    Request::from_parts(head, body)
}

/// Joins the cookies, which HTTP/2 may send in several fields.
fn join_cookies(headers: &mut HeaderMap) {
    let fields: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if fields.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&fields.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// The body of a response. Dropping it ends the connection of its request.
struct ForwardedBody {
    body: Incoming,
    _connection: AbortOnDropHandle<()>,
    _open: OpenRequest,
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
