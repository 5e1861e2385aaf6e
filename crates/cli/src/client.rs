//! A client of the API.

use std::pin::Pin;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use crate::progress::say;
use crate::text::{text, without_controls};
use crate::tls::{self, Trust};

/// The maximum size of a response that is not a stream, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The body of a request.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// A server and an API key for it.
pub(crate) struct Client {
    base: Url,
    key: SecretString,
    http: HttpClient<HttpsConnector<HttpConnector>, RequestBody>,
}

/// A refusal of the server.
#[derive(Debug, thiserror::Error)]
#[error("{message}{hint}")]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    message: String,
    hint: &'static str,
}

/// A request to send.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: Vec<&'a str>,
    pub(crate) query: Vec<(&'a str, &'a str)>,
    pub(crate) body: Option<(String, RequestBody)>,
}

impl<'a> Call<'a> {
    pub(crate) fn new<const N: usize>(method: Method, path: [&'a str; N]) -> Self {
        Self { method, path: path.to_vec(), query: Vec::new(), body: None }
    }

    pub(crate) fn json(mut self, value: &Value) -> Self {
        self.body = Some(("application/json".to_owned(), whole(value.to_string())));
        self
    }
}

/// Returns a body that is in memory.
pub(crate) fn whole(content: impl Into<Bytes>) -> RequestBody {
    Full::new(content.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body that is read while it is sent.
pub(crate) fn streamed(
    chunks: impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static,
) -> RequestBody {
    use futures_util::TryStreamExt as _;
    let frames: Pin<Box<dyn futures_util::Stream<Item = std::io::Result<Frame<Bytes>>> + Send>> =
        Box::pin(chunks.map_ok(Frame::data));
    StreamBody::new(frames).boxed_unsync()
}

impl Client {
    pub(crate) fn new(base: Url, key: SecretString, trust: &Trust) -> anyhow::Result<Self> {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(trust)?)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self { base, key, http: HttpClient::builder(TokioExecutor::new()).build(connector) })
    }

    /// Gets a resource; `None` if it does not exist.
    pub(crate) async fn find(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<Option<Value>> {
        let call = Call { method: Method::GET, path: path.to_vec(), query: query.to_vec(), body: None };
        match self.value(call).await {
            Ok((value, _)) => Ok(Some(value)),
            Err(error) if error.downcast_ref::<Refusal>().is_some_and(|it| it.status == StatusCode::NOT_FOUND) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a request. Returns the JSON of the response, `null` for an empty one, and its headers.
    ///
    /// # Errors
    /// A [`Refusal`], or if the server cannot be reached.
    pub(crate) async fn value(&self, call: Call<'_>) -> anyhow::Result<(Value, HeaderMap)> {
        let (headers, body) = self.send(call).await?;
        let body = whole_body(body).await?;
        let value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).context("the answer is not JSON")?
        };
        Ok((value, headers))
    }

    /// Sends a request. Returns the headers and the body of the successful response.
    ///
    /// # Errors
    /// A [`Refusal`], or if the server cannot be reached.
    pub(crate) async fn send(&self, call: Call<'_>) -> anyhow::Result<(HeaderMap, Incoming)> {
        let mut url = self.base.clone();
        url.path_segments_mut().ok().context("the URL of the server has no path")?.pop_if_empty().extend(call.path);
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(call.query);
        }
        let mut key = http::HeaderValue::try_from(format!("Bearer {}", self.key.expose_secret()))
            .ok()
            .context("the API key has characters that no key has")?;
        key.set_sensitive(true);
        let mut request =
            http::Request::builder().method(call.method).uri(url.as_str()).header(header::AUTHORIZATION, key);
        let body = match call.body {
            Some((media_type, body)) => {
                request = request.header(header::CONTENT_TYPE, media_type);
                body
            }
            None => whole(Bytes::new()),
        };
        let answer = self.http.request(request.body(body)?).await;
        let (head, body) = answer.map_err(|error| unreachable(&self.base, error))?.into_parts();
        if head.status.is_success() {
            report_ignored_fields(&head.headers);
            return Ok((head.headers, body));
        }
        Err(refusal(&self.base, head.status, &whole_body(body).await?).into())
    }
}

/// Says which fields of the request the server does not know.
fn report_ignored_fields(headers: &HeaderMap) {
    if let Some(ignored) = headers.get("x-casement-ignored-fields").and_then(|names| names.to_str().ok()) {
        say(&format!("the server knows no field {} here and ignored it", without_controls(ignored)));
    }
}

async fn whole_body(body: Incoming) -> anyhow::Result<Bytes> {
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
    Ok(body.map_err(|error| anyhow::anyhow!("the answer is not whole: {error}"))?.to_bytes())
}

/// Returns the error of a request without a response: what failed, and what to do.
fn unreachable(base: &Url, error: hyper_util::client::legacy::Error) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    if let Some(remedy) = error.chain().find_map(tls::remedy) {
        return anyhow::anyhow!("{base}: {remedy}");
    }
    let cause = error.root_cause();
    anyhow::anyhow!(
        "{base} cannot be reached: {cause}. Does the server run there? `casement serve` starts one; --url or a context names \
         another"
    )
}

/// Returns the error of a response: the message of the server, the details that it does not contain, and what to do next.
fn refusal(base: &Url, status: StatusCode, body: &[u8]) -> Refusal {
    let value = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let sent = without_controls(text(&value, "message"));
    if sent.is_empty() {
        let message = format!("{status}: {base} answers, but not as a Casement server does: is the URL right?");
        return Refusal { status, message, hint: "" };
    }
    let mut message = format!("{status}: {sent}");
    for detail in value["details"].as_array().into_iter().flatten() {
        let (field, what) = (without_controls(text(detail, "field")), without_controls(text(detail, "message")));
        if sent.contains(&what) {
            continue;
        }
        let line = if field.is_empty() || what.starts_with(&field) { what } else { format!("{field}: {what}") };
        message = format!("{message}\n  {line}");
    }
    let hint = match status {
        StatusCode::UNAUTHORIZED => {
            "\n  `casement context list` shows the saved servers; `casement keys create --data-dir DIR --name NAME` makes a \
             key on the server's machine"
        }
        StatusCode::TOO_MANY_REQUESTS if sent.contains(" of the organization ") => {
            "\n  `casement limits get` shows the limits; the operator raises them with flags of `casement serve`, such as \
             --max-concurrent-sessions"
        }
        StatusCode::TOO_MANY_REQUESTS if sent.contains(" of the project ") => {
            "\n  `casement limits get-project PROJECT` shows the limits, and `casement limits update-project` raises them"
        }
        _ => "",
    };
    Refusal { status, message, hint }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(body: &str) -> String {
        let base = "http://127.0.0.1:1/".parse().expect("a URL");
        refusal(&base, StatusCode::BAD_REQUEST, body.as_bytes()).to_string()
    }

    #[test]
    fn each_error_of_a_field_is_printed_once() {
        let one =
            json!({ "message": "size: must be from 1 to 9", "details": [{ "message": "size: must be from 1 to 9" }] });
        assert_eq!(printed(&one.to_string()), "400 Bad Request: size: must be from 1 to 9");
        let two = json!({ "message": "2 fields are wrong", "details": [
            { "field": "size", "message": "must be from 1 to 9" }, { "message": "name: is required" },
        ] });
        assert_eq!(
            printed(&two.to_string()),
            "400 Bad Request: 2 fields are wrong\n  size: must be from 1 to 9\n  name: is required"
        );
    }

    #[test]
    fn a_server_of_another_kind_is_reported_as_one() {
        for body in ["", "<html>", "{}"] {
            assert!(printed(body).contains("not as a Casement server does"), "{body}");
        }
    }
}
