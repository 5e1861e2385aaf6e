//! The HTTP client of the exporter, and the classification of responses.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_dial::HttpConnector;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use parking_lot::Mutex;
use prost::Message as _;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

/// The timeout of one attempt.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The type of the content of requests.
const PROTOBUF: &str = "application/x-protobuf";

/// The result of sending a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Accepted, except for `rejected` records, which will never be accepted.
    Accepted { rejected: usize },
    /// The batch is too long.
    TooLong,
    /// The batch will never be accepted as long as the settings are the same.
    Refused {
        why: String,
        /// Whether the content of the batch is the reason, so that other settings do not help.
        for_content: bool,
    },
    /// The batch must be retried, but not before `after`.
    RetryLater { why: String, after: Duration },
}

/// The reason why a request to a destination of a caller got no response. Its text contains no address and no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The host is unknown, not allowed, or does not answer.
    #[error("the host cannot be reached")]
    Unreachable,
    /// The connection or its certificate is bad.
    #[error("the connection failed")]
    Connection,
    /// The response did not come in time.
    #[error("no answer in time")]
    Silent,
    /// The response is too long.
    #[error("the answer is too long")]
    TooLong,
}

/// The port that sends requests to destinations of callers, under the egress rules.
#[async_trait]
pub trait DestinationClient: std::fmt::Debug + Send + Sync {
    /// Sends a request to its absolute URI. Returns the response, with a body of at most `max_bytes`.
    async fn send(&self, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, SendError>;
}

/// Sends requests.
#[derive(Clone, Debug)]
enum Sending {
    /// To the collector that the operator has configured.
    Direct(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
    /// To a destination of a caller, with exactly its headers.
    Restricted { client: Arc<dyn DestinationClient>, headers: HeaderMap },
}

/// Sends batches, and stores the result of the last response.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    sending: Sending,
    last_verdict: Arc<Mutex<Option<Verdict>>>,
}

impl Transport {
    /// Creates the client. `secure`: TLS will be used.
    pub(crate) fn new(secure: bool) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        if secure {
            // Invalid certificates are skipped; without any, no server is trusted.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        let connector = connector.wrap_connector(HttpConnector::new(REQUEST_TIMEOUT));
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { sending: Sending::Direct(client), last_verdict: Arc::default() })
    }

    /// Creates the client for the destination of a caller with these headers.
    pub(crate) fn restricted(client: Arc<dyn DestinationClient>, headers: HeaderMap) -> Self {
        Self { sending: Sending::Restricted { client, headers }, last_verdict: Arc::default() }
    }

    /// Returns and removes the result of the last attempt.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.last_verdict.lock().take()
    }

    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = match &self.sending {
            Sending::Direct(client) => client,
            Sending::Restricted { client, headers } => {
                // The exporter adds headers of the operator's environment, which may hold the key of another collector.
                request.headers_mut().clone_from(headers);
                request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
                return Ok(client.send(request, MAX_RESPONSE_BYTES).await?);
            }
        };
        let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

#[async_trait]
impl HttpClient for Transport {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = match tokio::time::timeout(REQUEST_TIMEOUT, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()).into()),
        };
        let verdict = match &answer {
            Ok(answer) => classify(answer),
            Err(error) => Verdict::RetryLater { why: causes(&**error), after: Duration::ZERO },
        };
        *self.last_verdict.lock() = Some(verdict);
        answer
    }
}

/// Returns the error with its causes.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Classifies a response as OTLP specifies.
fn classify(answer: &Response<Bytes>) -> Verdict {
    let status = answer.status();
    match status {
        status if status.is_success() => {
            let response = ExportLogsServiceResponse::decode(answer.body().as_ref()).ok();
            let rejected = response
                .and_then(|response| response.partial_success)
                .map_or(0, |partial| partial.rejected_log_records);
            Verdict::Accepted { rejected: usize::try_from(rejected).unwrap_or(0) }
        }
        StatusCode::PAYLOAD_TOO_LARGE => Verdict::TooLong,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            Verdict::RetryLater { why: format!("it answers {status}"), after: retry_after(answer.headers()) }
        }
        _ => {
            let for_content = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
            Verdict::Refused { why: format!("it answers {status}"), for_content }
        }
    }
}

/// Returns the time of the `Retry-After` header, zero without one. Supports seconds only: dates are rare, and the
/// backoff applies then.
fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds =
        headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}
