//! How batches travel, and what the destination says to them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message as _;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

/// How long one attempt may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 64 << 10;

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All of it has arrived but so many records, which never will.
    Taken { rejected: usize },
    /// It is too long.
    TooLong,
    /// It never will be taken.
    Refused(String),
    /// It may be later, not before so long.
    Later { why: String, after: Duration },
}

/// Sends, and remembers what the destination said last.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    said: Arc<Mutex<Option<Verdict>>>,
}

impl Transport {
    /// `secure`: whether TLS will be spoken.
    pub(crate) fn new(secure: bool) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        if secure {
            // Some that cannot be read leave the others; without any, nobody is trusted.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, said: Arc::default() })
    }

    /// What the destination said since this was asked last.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = self.client.request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

#[async_trait]
impl HttpClient for Transport {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = match tokio::time::timeout(PATIENCE, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs()).into()),
        };
        let verdict = match &answer {
            Ok(answer) => judge(answer),
            Err(error) => Verdict::Later { why: causes(&**error), after: Duration::ZERO },
        };
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
        answer
    }
}

/// The error with what led to it.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        said = format!("{said}: {inner}");
        cause = inner.source();
    }
    said
}

/// As OTLP says which answers mean what.
fn judge(answer: &Response<Bytes>) -> Verdict {
    let status = answer.status();
    match status {
        status if status.is_success() => {
            let told = ExportLogsServiceResponse::decode(answer.body().as_ref()).ok();
            let rejected = told.and_then(|told| told.partial_success).map_or(0, |partial| partial.rejected_log_records);
            Verdict::Taken { rejected: usize::try_from(rejected).unwrap_or(0) }
        }
        StatusCode::PAYLOAD_TOO_LARGE => Verdict::TooLong,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            Verdict::Later { why: format!("it answers {status}"), after: retry_after(answer.headers()) }
        }
        _ => Verdict::Refused(format!("it answers {status}")),
    }
}

/// Only in seconds: dates are rare here, and then our own back-off does.
fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds =
        headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}
