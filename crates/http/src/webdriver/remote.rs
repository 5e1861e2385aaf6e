//! Classic WebDriver for a remote browser: its session on the WebDriver server already runs. A new session of a client
//! is that one, its end leaves the browser as it is, and all commands within it go to the server.

use std::time::Duration;

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    http::{Method, StatusCode, header},
};
use bytes::Bytes;
use casement_domain::{engine::EngineName, untrusted_json};
use futures_util::TryStreamExt as _;
use http_body_util::{BodyDataStream, BodyExt as _, Full, Limited};
use hyper::{Request, Response, body::Body as _, body::Incoming};
use serde_json::{Value, json};
use url::Url;

use super::{
    ClassicError, ClassicResponse, CommandKind, WebDriverSessionId,
    capabilities::Bidi,
    classic::{self, MAX_NEW_SESSION_BYTES},
    remote_capabilities::{self, Requested, Unmatched},
};
use crate::relay::{BrowserConnection, BrowserConnector, Channel, RemoteSessionInfo, Upstream, exchange};

/// The maximum size of an answer of the server, in bytes. It passes as a stream.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// The maximum size of an answer that is read before it passes, in bytes.
const MAX_SHORT_ANSWER_BYTES: usize = 1024 * 1024;
/// The maximum time until the server begins to answer a command. A command may wait for a page or a script.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A command of a client to a remote browser's session, and what it needs.
pub(crate) struct RemoteClassic<'a> {
    /// Opens connections to the server.
    pub(crate) connector: &'a dyn BrowserConnector,
    /// The session on the server.
    pub(crate) session: &'a RemoteSessionInfo,
    /// The engine, for errors.
    pub(crate) engine: &'a EngineName,
    /// The public `…/webdriver?jwt=…` URL.
    pub(crate) webdriver_url: &'a Url,
    /// The public URL of the DevTools endpoint.
    pub(crate) cdp_url: &'a str,
}

/// The answer to a command.
pub(crate) struct RemoteAnswer {
    /// The answer, as for a browser of this program.
    pub(crate) answer: ClassicResponse,
    /// The path of an uploaded file on the machine of the browser.
    pub(crate) uploaded: Option<String>,
}

impl From<ClassicResponse> for RemoteAnswer {
    fn from(answer: ClassicResponse) -> Self {
        Self { answer, uploaded: None }
    }
}

/// Returns the path at the server, below its session, of the rest of a client's path.
fn upstream_command(method: &Method, command: &str) -> Result<String, ClassicError> {
    match command.strip_prefix("se/") {
        None if command == "file" && method == Method::POST => Ok("/se/file".to_owned()),
        None if command.is_empty() => Ok(String::new()),
        None => Ok(format!("/{command}")),
        Some("file") if method == Method::POST => Ok("/se/file".to_owned()),
        Some(command @ ("files" | "log" | "log/types")) => Ok(format!("/se/{command}")),
        // All others are addresses of the server.
        Some(_) => Err(ClassicError::UnknownCommand),
    }
}

impl RemoteClassic<'_> {
    /// Runs a command. `tail` is the path after `…/wd/`, percent-encoded.
    ///
    /// # Errors
    /// [`ClassicError`] if callers may not use the command, or the server cannot be reached, or its answer is none of
    /// the protocol.
    pub(crate) async fn run(
        &self,
        kind: &CommandKind,
        method: &Method,
        tail: &str,
        body: Bytes,
    ) -> Result<RemoteAnswer, ClassicError> {
        let id = match kind {
            // The server's own status names its machines.
            CommandKind::Status => {
                let message = "the browser runs";
                return Ok(value(&json!({ "ready": true, "message": message })).into());
            }
            CommandKind::NewSession => return self.attach(&body).await,
            CommandKind::Within(id) | CommandKind::End(id) => id,
        };
        if id.as_str() != self.session.id {
            return Err(ClassicError::UnknownSession);
        }
        if matches!(kind, CommandKind::End(_)) {
            return Ok(value(&Value::Null).into());
        }
        let command = tail.splitn(3, '/').nth(2).unwrap_or_default();
        let path = upstream_command(method, command)?;
        let response = self.send(method, &path, body).await?;
        if path == "/se/file" { uploaded(response).await } else { passed(response).map(Into::into) }
    }

    /// Answers a client that wants a new session with the one that runs.
    async fn attach(&self, body: &[u8]) -> Result<RemoteAnswer, ClassicError> {
        if body.len() > MAX_NEW_SESSION_BYTES {
            return Err(ClassicError::Body);
        }
        let parameters: Value = untrusted_json::parse(body).map_err(|_| ClassicError::Body)?;
        let compared = remote_capabilities::compare(&parameters, Bidi::AsRequested, self.session);
        let Requested { bidi, timeouts } = compared.map_err(|unmatched| match unmatched {
            Unmatched::Malformed(bad) => ClassicError::Capabilities(bad),
            different @ Unmatched::Different { .. } => {
                ClassicError::NotSupported { engine: self.engine.clone(), why: different.to_string() }
            }
        })?;
        if let Some(timeouts) = &timeouts {
            let response = self.send(&Method::POST, "/timeouts", timeouts.to_string().into()).await?;
            if !response.status().is_success() {
                return passed(response).map(Into::into);
            }
        }
        let id = WebDriverSessionId::parse(&self.session.id).map_err(response_error)?;
        let url = bidi.then_some(self.webdriver_url);
        let mut capabilities = remote_capabilities::public(self.session, &id, url, Some(self.cdp_url));
        if let (Some(Value::Object(set)), Some(Value::Object(known))) = (timeouts, capabilities.get_mut("timeouts")) {
            known.extend(set);
        }
        let mut answer = value(&json!({ "sessionId": id.as_str(), "capabilities": capabilities }));
        answer.created = Some(id);
        Ok(answer.into())
    }

    /// Sends a command to the server. `path` is below that of the session.
    async fn send(&self, method: &Method, path: &str, body: Bytes) -> Result<Response<Incoming>, ClassicError> {
        let BrowserConnection { stream, endpoint, .. } = self.connector.dial(Channel::WebDriver).await?;
        let endpoint = endpoint.ok_or_else(|| ClassicError::Response("the connection is not to a server".into()))?;
        let base = endpoint.path.trim_end_matches('/');
        // No header of the client is forwarded: no token, no origin and no public host.
        let mut request = Request::builder()
            .method(method.as_str())
            .uri(format!("{base}/session/{}{path}", self.session.id))
            .header("host", &endpoint.host)
            .header("content-type", classic::CONTENT_TYPE)
            .header("connection", "close");
        for (name, value) in endpoint.further_headers() {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(response_error)?;
        let answered = exchange(Upstream::adopt(stream)?, request);
        let response = tokio::time::timeout(COMMAND_TIMEOUT, answered).await.map_err(|_| ClassicError::Timeout)?;
        let response = response.map_err(response_error)?;
        check(&response)?;
        Ok(response)
    }
}

/// Checks that an answer is one of the protocol. Redirects are neither followed nor passed, because they contain
/// addresses of the server; refusals of the server's own credentials would ask the client for some.
fn check(response: &Response<Incoming>) -> Result<(), ClassicError> {
    let status = response.status();
    if status.is_informational() || status.is_redirection() || [401, 403, 407].contains(&status.as_u16()) {
        return Err(ClassicError::Refused { status: status.as_u16() });
    }
    let kind = response.headers().get(hyper::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("application/json")) {
        return Err(ClassicError::Refused { status: status.as_u16() });
    }
    if response.body().size_hint().lower() > MAX_ANSWER_BYTES as u64 {
        return Err(ClassicError::Response("the answer is too long".into()));
    }
    Ok(())
}

fn head(status: u16) -> Result<HttpResponseBuilder, ClassicError> {
    let mut response = HttpResponse::build(StatusCode::from_u16(status).map_err(response_error)?);
    response.insert_header((header::CONTENT_TYPE, classic::CONTENT_TYPE));
    response.insert_header((header::CACHE_CONTROL, "no-cache"));
    Ok(response)
}

/// Returns an answer of this server.
fn value(value: &Value) -> ClassicResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_TYPE, classic::CONTENT_TYPE));
    response.insert_header((header::CACHE_CONTROL, "no-cache"));
    ClassicResponse { response: response.body(json!({ "value": value }).to_string()), created: None }
}

/// Passes an answer of the server without its headers.
fn passed(response: Response<Incoming>) -> Result<ClassicResponse, ClassicError> {
    let mut passed = head(response.status().as_u16())?;
    let body = BodyDataStream::new(Limited::new(response.into_body(), MAX_ANSWER_BYTES));
    let response = passed.streaming(body.map_err(|error| std::io::Error::other(error.to_string())));
    Ok(ClassicResponse { response, created: None })
}

/// Passes the answer to an upload, and returns the path in it.
async fn uploaded(response: Response<Incoming>) -> Result<RemoteAnswer, ClassicError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_SHORT_ANSWER_BYTES).collect().await;
    let body = body.map_err(ClassicError::Response)?.to_bytes();
    let answered: Value = untrusted_json::parse(&body).map_err(response_error)?;
    let uploaded = answered["value"].as_str().filter(|_| status.is_success()).map(str::to_owned);
    let response = head(status.as_u16())?.body(body);
    Ok(RemoteAnswer { answer: ClassicResponse { response, created: None }, uploaded })
}

fn response_error(error: impl std::error::Error + Send + Sync + 'static) -> ClassicError {
    ClassicError::Response(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_commands_of_selenium_only_those_of_files_and_logs_are_forwarded() {
        let of = |method: Method, command| upstream_command(&method, command).ok();
        assert_eq!(of(Method::POST, "se/file").as_deref(), Some("/se/file"));
        assert_eq!(of(Method::POST, "file").as_deref(), Some("/se/file"));
        assert_eq!(of(Method::DELETE, "se/files").as_deref(), Some("/se/files"));
        assert_eq!(of(Method::GET, "element/1/text").as_deref(), Some("/element/1/text"));
        assert_eq!(of(Method::POST, "se/log").as_deref(), Some("/se/log"));
        assert_eq!(of(Method::GET, "se/log/types").as_deref(), Some("/se/log/types"));
        for closed in ["se/vnc", "se/cdp", "se/bidi", "se/", "se/files/x", "se/events"] {
            assert_eq!(of(Method::GET, closed), None, "{closed}");
        }
    }
}
