//! HTTP requests to a WebDriver server. Redirects are not followed, and answers are bounded.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::time::timeout;

use crate::answer;
use crate::config::{ConfigError, WebDriverConfig};
use crate::dial::Dialer;
use crate::error::GridError;

/// The maximum size of an answer to a command, in bytes.
pub(crate) const MAX_ANSWER: usize = 1024 * 1024;
/// Longer than most clients keep one, and shorter than servers and proxies do.
const IDLE_CONNECTION: Duration = Duration::from_secs(15);
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// A request.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// The path under the server's URL.
    pub(crate) path: &'a str,
    pub(crate) body: Option<&'a Value>,
    pub(crate) within: Duration,
    /// The maximum size of the answer, in bytes.
    pub(crate) max: usize,
}

/// A client of one WebDriver server. Clones share its connections.
#[derive(Clone)]
pub(crate) struct Client {
    dialer: Dialer,
    http: HttpClient<Dialer, Full<Bytes>>,
    secrets: Vec<String>,
    command_timeout: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client of {}", self.dialer.address())
    }
}

impl Client {
    pub(crate) fn new(config: &WebDriverConfig) -> Result<Self, ConfigError> {
        let dialer = Dialer::new(config)?;
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .build(dialer.clone());
        let secrets = config.credentials.as_ref().map_or_else(Vec::new, |credentials| {
            let password = credentials.password().expose_secret().to_owned();
            let both = STANDARD.encode(format!("{}:{password}", credentials.user()));
            [both, password].into_iter().filter(|secret| !secret.is_empty()).collect()
        });
        Ok(Self { dialer, http, secrets, command_timeout: config.command_timeout })
    }

    pub(crate) const fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(crate) const fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    /// Makes a text of the server safe to show.
    pub(crate) fn safe(&self, text: &str) -> String {
        answer::safe(text, &self.secrets)
    }

    /// Sends a command without a body and returns the value of the answer.
    pub(crate) async fn command(&self, method: Method, path: &str) -> Result<Value, GridError> {
        let within = self.command_timeout;
        self.call(Ask { method, path, body: None, within, max: MAX_ANSWER }).await
    }

    /// Sends a request and returns the value of the answer.
    pub(crate) async fn call(&self, ask: Ask<'_>) -> Result<Value, GridError> {
        let (status, body) = self.bytes(ask).await?;
        self.parse(status, &body)
    }

    /// Parses the answer to a command.
    pub(crate) fn parse(&self, status: StatusCode, body: &[u8]) -> Result<Value, GridError> {
        answer::parse(status, body, &self.secrets)
    }

    /// Sends a request and returns the status and the body of the answer.
    pub(crate) async fn bytes(&self, ask: Ask<'_>) -> Result<(StatusCode, Bytes), GridError> {
        let within = ask.within;
        let max = ask.max;
        let receiving = async {
            let response = self.send(ask).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), max).collect().await.map_err(|error| {
                if error.is::<http_body_util::LengthLimitError>() {
                    GridError::nonsense(format!("it has more than {max} bytes"))
                } else {
                    GridError::away("the response was interrupted")
                }
            })?;
            Ok((status, body.to_bytes()))
        };
        let elapsed = |_| GridError::Timeout { seconds: within.as_secs() };
        timeout(within, receiving).await.map_err(elapsed)?
    }

    async fn send(&self, ask: Ask<'_>) -> Result<Response<Incoming>, GridError> {
        let address = self.dialer.address();
        let uri = format!("{address}{}", ask.path);
        let body = ask.body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let mut request = Request::builder().method(ask.method).uri(uri).body(Full::new(body)).map_err(|_| {
            let what = "it leads to a path that cannot be requested";
            GridError::nonsense(what)
        })?;
        let headers = request.headers_mut();
        headers.extend(self.dialer.headers());
        headers.insert(ACCEPT, JSON);
        headers.insert(USER_AGENT, HeaderValue::from_static("casement"));
        // A Selenium Grid refuses a body without the character set.
        if ask.body.is_some() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        self.http.request(request).await.map_err(|error| {
            let cause = error.source().and_then(|source| source.downcast_ref::<GridError>());
            cause.cloned().unwrap_or_else(|| GridError::away("the connection was lost"))
        })
    }
}
