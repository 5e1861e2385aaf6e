//! A client of the public API.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use super::{text, without_controls};

/// The maximum size of a response that is not a stream, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// A server and an API key for it.
pub(super) struct Api {
    base: Url,
    key: SecretString,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Api {
    pub(super) fn new(base: Url, key: SecretString) -> anyhow::Result<Self> {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_native_roots()
            .context("this system's certificates cannot be read")?
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self { base, key, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// Gets a resource; `None` if it does not exist.
    pub(super) async fn find(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<Option<Value>> {
        let answer = self.send(Method::GET, path, query, None).await?;
        if answer.status() == http::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        read_response(answer).await.map(Some)
    }

    /// Posts a body of this content type.
    pub(super) async fn post(&self, path: &[&str], kind: &str, body: Vec<u8>) -> anyhow::Result<Value> {
        read_response(self.send(Method::POST, path, &[], Some((kind, body.into()))).await?).await
    }

    /// Gets a resource as a stream.
    pub(super) async fn stream(&self, path: &[&str]) -> anyhow::Result<Incoming> {
        let answer = self.send(Method::GET, path, &[], None).await?;
        if answer.status().is_success() {
            Ok(answer.into_body())
        } else {
            Err(read_response(answer).await.err().context("refused")?)
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<(&str, Bytes)>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut url = self.base.clone();
        url.path_segments_mut().ok().context("the address of the server has no path")?.pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = Request::builder().method(method).uri(url.as_str());
        let request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.key.expose_secret()));
        let (request, body) = match body {
            Some((kind, body)) => (request.header(header::CONTENT_TYPE, kind), body),
            None => (request, Bytes::new()),
        };
        let sent = self.client.request(request.body(Full::new(body))?).await;
        sent.with_context(|| format!("{} cannot be reached", self.base))
    }
}

/// Reads a response to its end; a status that is not a success becomes an error with the message of the server.
async fn read_response(answer: Response<Incoming>) -> anyhow::Result<Value> {
    let status = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
    let value = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    let mut message = without_controls(text(&value, "message"));
    for detail in value["details"].as_array().into_iter().flatten() {
        message = format!(
            "{message}\n  {}: {}",
            without_controls(text(detail, "field")),
            without_controls(text(detail, "message"))
        );
    }
    bail!("{status}: {message}")
}
