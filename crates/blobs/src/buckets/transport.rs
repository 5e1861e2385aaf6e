//! The HTTP client of the requests to buckets. It notes the last response, because the error of the S3 client is a text
//! with addresses and with whatever the store has written.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::audit_destination::BucketFault;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use parking_lot::Mutex;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

/// The timeout of a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a response that is read, in bytes. Responses to writes are short.
const MAX_RESPONSE_BYTES: usize = 256 << 10;
/// The maximum length of the error code of a store.
const MAX_CODE: usize = 64;

/// What is known of a failed request.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// There was no response.
    Nothing,
    /// The response.
    Response { status: u16, code: Option<String> },
}

impl Seen {
    pub(super) fn fault(self) -> BucketFault {
        match self {
            Self::Nothing => BucketFault::Unreachable,
            Self::Response { status, code } => BucketFault::Refused { status, code },
        }
    }
}

/// Makes clients that share connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
    seen: Arc<Mutex<Option<Seen>>>,
}

impl Connector {
    pub(super) fn new() -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        // Invalid certificates are skipped; without any, no server is trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp));
        Ok(Self { client, seen: Arc::default() })
    }

    /// Returns a connector with the same connections, and where it notes the last failure.
    pub(super) fn noting(&self) -> (Self, Arc<Mutex<Option<Seen>>>) {
        let seen = Arc::default();
        (Self { client: self.client.clone(), seen: Arc::clone(&seen) }, seen)
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
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) => {
                *self.seen.lock() = Some(Seen::Nothing);
                return Err(HttpError::new(HttpErrorKind::Connect, error));
            }
        };
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, MAX_RESPONSE_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                *self.seen.lock() = Some(Seen::Nothing);
                return Err(HttpError::new_boxed(HttpErrorKind::Interrupted, error));
            }
        };
        if !head.status.is_success() {
            *self.seen.lock() = Some(Seen::Response { status: head.status.as_u16(), code: code(&body) });
        }
        let body = HttpResponseBody::new(Full::new(body).map_err(|never| match never {}));
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// Returns the error code in the response of a store, if it has the form of one.
fn code(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_plain = !code.is_empty() && code.len() <= MAX_CODE && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| code.to_owned())
}
