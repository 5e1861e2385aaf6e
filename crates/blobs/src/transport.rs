//! The HTTP client of the requests to S3-compatible stores. Its errors say what is known of a failed request, because the
//! error of the S3 client is a text with addresses and with whatever the store has written.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_dial::HttpConnector as TcpConnector;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

/// The timeout of a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of the head of a response, after the request's body was sent at [`SLOWEST_UPLOAD`].
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The further time in which a store joins the parts of an upload.
const JOIN_TIMEOUT: Duration = Duration::from_secs(45);
/// The slowest upload that does not count as a silent store, in bytes per second.
const SLOWEST_UPLOAD: usize = 256 << 10;
/// The longest pause within the body of a response.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of a response that is read whole, in bytes: of everything but reads.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// The maximum length of the error code of a store.
const MAX_CODE: usize = 64;

/// The status of a store that lacks what a request needs, and the code of one that is busy.
const UNSUPPORTED: u16 = 501;
const BUSY: &str = "SlowDown";

/// What is known of a failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// There was no response, or it broke off.
    Silent,
    /// The response.
    Refused { status: u16, code: Option<String> },
}

impl StoreFault {
    /// Returns the fault behind an error of the S3 client.
    pub(crate) fn of(error: &object_store::Error) -> Option<Self> {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(fault) = error.downcast_ref::<Self>() {
                return Some(fault.clone());
            }
            next = error.source();
        }
        None
    }

    /// Returns whether other requests would fail now too.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Silent => true,
            // A store that is busy says so to one request, and serves others.
            Self::Refused { status, code } => *status >= 500 && *status != UNSUPPORTED && code.as_deref() != Some(BUSY),
        }
    }

    /// Returns whether the store lacks what the request needs.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Refused { status: UNSUPPORTED, .. })
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("the object store does not respond"),
            Self::Refused { status, code: Some(code) } => write!(f, "the object store answers {status} {code}"),
            Self::Refused { status, code: None } => write!(f, "the object store answers {status}"),
        }
    }
}

impl Error for StoreFault {}

/// Makes clients that share connections.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
}

impl Connector {
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        // Invalid certificates are skipped; without any, no server is trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
        let tcp = TcpConnector::new(CONNECT_TIMEOUT);
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp));
        Ok(Self { client })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_write = matches!(*request.method(), Method::PUT | Method::POST);
        let size = u32::try_from(request.body().content_length() / SLOWEST_UPLOAD).unwrap_or(u32::MAX);
        let joins = request.method() == Method::POST && request.body().content_length() > 0;
        let joining = if joins { JOIN_TIMEOUT } else { Duration::ZERO };
        let within = HEAD_TIMEOUT + Duration::from_secs(size.into()) + joining;
        let response = match timeout(within, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => return Err(silent(HttpErrorKind::Connect)),
            Ok(Err(_)) => return Err(silent(HttpErrorKind::Interrupted)),
            Err(_elapsed) => return Err(silent(HttpErrorKind::Timeout)),
        };
        let (head, body) = response.into_parts();
        let body = Watched { body, pause: None };
        if is_read && head.status.is_success() {
            return Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)));
        }
        let body = match Limited::new(body, MAX_RESPONSE_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return Err(silent(HttpErrorKind::Interrupted)),
        };
        let code = code(&body);
        if is_fault(head.status, is_write, code.as_deref()) {
            return Err(refused(head.status, code));
        }
        let body = HttpResponseBody::new(Full::new(body).map_err(|never| match never {}));
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// Returns whether a response is a fault. The S3 client understands the others: a missing object, a condition that is
/// not met, a range outside of the object.
fn is_fault(status: StatusCode, is_write: bool, code: Option<&str>) -> bool {
    match status {
        StatusCode::NOT_FOUND => is_write || code == Some("NoSuchBucket"),
        StatusCode::PRECONDITION_FAILED
        | StatusCode::CONFLICT
        | StatusCode::NOT_MODIFIED
        | StatusCode::RANGE_NOT_SATISFIABLE => false,
        status => !status.is_success(),
    }
}

fn silent(kind: HttpErrorKind) -> HttpError {
    HttpError::new(kind, StoreFault::Silent)
}

fn refused(status: StatusCode, code: Option<String>) -> HttpError {
    // Requests that could not connect are repeated, others are not.
    let is_repeated = (status.is_server_error() && status.as_u16() != UNSUPPORTED)
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    let kind = if is_repeated { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
    HttpError::new(kind, StoreFault::Refused { status: status.as_u16(), code })
}

/// Returns the error code in the response of a store, if it has the form of one.
fn code(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_plain = !code.is_empty() && code.len() <= MAX_CODE && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| code.to_owned())
}

/// The body of a response, which fails if nothing comes for long. The time in which nobody reads does not count.
#[derive(Debug)]
struct Watched {
    body: Incoming,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.pause = None;
                Poll::Ready(frame.map(|frame| frame.map_err(|_| silent(HttpErrorKind::Interrupted))))
            }
            Poll::Pending => {
                let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE_TIMEOUT)));
                pause.as_mut().poll(context).map(|()| Some(Err(silent(HttpErrorKind::Timeout))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
