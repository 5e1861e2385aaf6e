//! The HTTP endpoints of the DevTools protocol below a session: its version and its targets, with the session's own
//! addresses in place of the browser's. A remote browser has only its browser-wide WebSocket, from which they are made.

use std::{sync::Arc, time::Duration};

use actix_web::{HttpResponse, http::header};
use bytes::Bytes;
use casement_domain::{NotFound, engine::Capability, session::ActivityGuard, untrusted_json};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};

use crate::{
    active_requests::SharedBytes,
    answer::Answer,
    error::{ApiError, Code},
    live_view::{Cdp, LiveViewError},
    relay::{BrowserConnector, CDP_HOST, Channel, ClientHandshake, RemoteSessionInfo, Upstream, exchange},
    request::{ActiveSession, Public, Request},
    session::Urls,
    state::Services,
    vm,
};

/// The maximum size of the browser's response, in bytes. A browser has at most some hundred targets.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
/// The maximum time for the browser's response.
const MAX_READ: Duration = Duration::from_secs(10);
/// The members with an address of the browser's own pages.
const FRONTENDS: [&str; 2] = ["devtoolsFrontendUrl", "devtoolsFrontendUrlCompat"];
/// The kinds of targets that Chromium does not list.
const HIDDEN: [&str; 2] = ["browser", "tab"];
const SOCKET: &str = "webSocketDebuggerUrl";

/// `GET /vm/{session_id}/json/version`.
pub(crate) async fn version(request: Request<ActiveSession>) -> Answer {
    let mut version = match source(&request)? {
        Source::Local(browser) => browser.read("/json/version").await?,
        Source::Remote(_, remote) => version_of(&remote),
    };
    let socket = urls(&request).cdp();
    if let Value::Object(members) = &mut version {
        members.insert(SOCKET.to_owned(), socket.into());
    }
    Ok(HttpResponse::Ok().json(version))
}

/// `GET /vm/{session_id}/json` and `GET /vm/{session_id}/json/list`.
pub(crate) async fn list(request: Request<ActiveSession>) -> Answer {
    let mut targets = match source(&request)? {
        Source::Local(browser) => browser.read("/json/list").await?,
        Source::Remote(browser, _) => return Ok(HttpResponse::Ok().json(bounded(MAX_READ, targets_of(browser)).await?)),
    };
    let urls = urls(&request);
    targets.as_array_mut().into_iter().flatten().for_each(|target| replace_addresses(target, &urls));
    Ok(HttpResponse::Ok().json(targets))
}

/// `GET /json/protocol` and `GET /connect/json/protocol`: the description of the protocol, which clients read before they
/// connect, from the host of the WebSocket and without a credential. It says nothing about any session.
pub(crate) async fn protocol(request: Request<Public>) -> Answer {
    description(request.services())
}

/// `GET /vm/{session_id}/json/protocol`.
pub(crate) async fn session_protocol(request: Request<ActiveSession>) -> Answer {
    local(&request, "json/protocol")?;
    description(request.services())
}

fn description(services: &Services) -> Answer {
    let description = services.session_connector.protocol().ok_or_else(|| {
        let message =
            "no browser has started on this node yet, which would describe its protocol: try again once one has";
        ApiError::new(Code::Unavailable, message)
    })?;
    let caching = (header::CACHE_CONTROL, "no-cache");
    let mut response = HttpResponse::Ok().insert_header(caching).content_type("application/json").body(description);
    response.extensions_mut().insert(SharedBytes);
    Ok(response)
}

/// `PUT /vm/{session_id}/json/new?URL`: opens a page.
pub(crate) async fn new(request: Request<ActiveSession>) -> Answer {
    let browser = local(&request, "json/new")?;
    // The whole query is the URL, but for the token that may follow it.
    let query = request.http().query_string().split('&').filter(|pair| !pair.starts_with("jwt="));
    let url = query.collect::<Vec<_>>().join("&");
    let path = if url.is_empty() { "/json/new".to_owned() } else { format!("/json/new?{url}") };
    let (status, body) = browser.ask(hyper::Method::PUT, &path).await?;
    if !status.is_success() {
        return Err(ApiError::new(Code::UpstreamError, "the browser did not open the page"));
    }
    let mut target = untrusted_json::parse(&body).map_err(unreadable)?;
    replace_addresses(&mut target, &urls(&request));
    Ok(HttpResponse::Ok().json(target))
}

/// `GET /vm/{session_id}/json/activate/{target_id}`: brings a page to the front.
pub(crate) async fn activate(request: Request<ActiveSession>) -> Answer {
    send_command(&request, "activate", "Target activated").await
}

/// `GET /vm/{session_id}/json/close/{target_id}`: closes a page.
pub(crate) async fn close(request: Request<ActiveSession>) -> Answer {
    send_command(&request, "close", "Target is closing").await
}

/// Sends a command about a target. The response is a text, as from Chromium.
async fn send_command(request: &Request<ActiveSession>, command: &str, done: &'static str) -> Answer {
    let browser = local(request, &format!("json/{command}"))?;
    let target = request.path("target_id")?;
    if !is_target(&target) {
        return Err(NotFound::new("target", target).into());
    }
    let (status, _) = browser.ask(hyper::Method::GET, &format!("/json/{command}/{target}")).await?;
    match status {
        status if status.is_success() => Ok(HttpResponse::Ok().content_type("text/plain; charset=utf-8").body(done)),
        hyper::StatusCode::NOT_FOUND => Err(NotFound::new("target", target).into()),
        _ => Err(ApiError::new(Code::UpstreamError, "the browser refused the command")),
    }
}

/// Replaces the addresses of a target of Chromium by those of the session.
fn replace_addresses(target: &mut Value, urls: &Urls<'_>) {
    let Some(target) = target.as_object_mut() else { return };
    FRONTENDS.iter().for_each(|name| drop(target.remove(*name)));
    match target.get("id").and_then(Value::as_str).filter(|id| is_target(id)).map(|id| urls.cdp_of_target(id)) {
        Some(socket) => target.insert(SOCKET.to_owned(), socket.into()),
        None => target.remove(SOCKET),
    };
}

/// Returns the browser of the session if it is one of this program.
fn local(request: &Request<ActiveSession>, name: &str) -> Result<Browser, ApiError> {
    match source(request)? {
        Source::Local(browser) => Ok(browser),
        Source::Remote(..) => {
            let engine = &request.session().shape.engine;
            Err(ApiError::new(Code::NotSupported, format!("the engine {engine} does not support {name}")))
        }
    }
}

/// `GET /vm/{session_id}/devtools/page/{target_id}`: relays a DevTools connection to one target.
pub(crate) async fn page(request: Request<ActiveSession>) -> Answer {
    let client = ClientHandshake::read(request.http())?;
    let target = request.path("target_id")?;
    if !is_target(&target) {
        return Err(NotFound::new("target", target).into());
    }
    if let Source::Remote(..) = source(&request)? {
        let engine = &request.session().shape.engine;
        let message = format!(
            "the engine {engine} does not support devtools/page, the WebSockets of single targets: connect to the \
             whole browser and use Target.attachToTarget with flatten"
        );
        return Err(ApiError::new(Code::NotSupported, message));
    }
    vm::open_cdp(request, &client, Some(format!("/devtools/page/{target}"))).await
}

/// Returns whether a text has the form of a target's id: letters, digits and hyphens.
fn is_target(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn urls(request: &Request<ActiveSession>) -> Urls<'_> {
    Urls::new(&request.api().public_url.get(), &request.services().tokens, request.session())
}

/// A browser whose endpoints are read. It counts as used meanwhile.
struct Browser {
    connector: Arc<dyn BrowserConnector>,
    _activity: ActivityGuard,
}

/// Where the answers come from.
enum Source {
    Local(Browser),
    Remote(Browser, Arc<RemoteSessionInfo>),
}

fn source(request: &Request<ActiveSession>) -> Result<Source, ApiError> {
    let (services, session) = (request.services(), request.session());
    services.sessions.check_engine(session, Capability::Cdp)?;
    let activity = services.sessions.activity().begin(session.id);
    let activity = activity.ok_or_else(|| NotFound::new("browser session", session.id.to_string()))?;
    let browser = session.browser.ok_or_else(|| ApiError::internal("an active session without a browser"))?;
    let browser = Browser { connector: services.session_connector.connector(browser), _activity: activity };
    Ok(match browser.connector.remote_session() {
        Some(remote) => Source::Remote(browser, remote),
        None => Source::Local(browser),
    })
}

impl Browser {
    /// Reads an endpoint of a browser of this program.
    async fn read(self, path: &str) -> Result<Value, ApiError> {
        let (_, body) = self.ask(hyper::Method::GET, path).await?;
        untrusted_json::parse(&body).map_err(unreadable)
    }

    /// Sends a request to an endpoint of a browser of this program.
    async fn ask(&self, method: hyper::Method, path: &str) -> Result<(hyper::StatusCode, Bytes), ApiError> {
        bounded(MAX_READ, exchange_with(self.connector.as_ref(), method, path)).await
    }
}

/// Returns what a Chromium answers, as far as the server of a remote one tells.
fn version_of(remote: &RemoteSessionInfo) -> Value {
    let version = remote.capabilities.get("browserVersion").and_then(Value::as_str).unwrap_or_default();
    json!({ "Browser": format!("Chrome/{version}"), "Protocol-Version": "1.3" })
}

/// Asks a remote browser for its targets. They have no WebSockets of their own.
async fn targets_of(browser: Browser) -> Result<Value, ApiError> {
    let mut cdp = Cdp::connect(browser.connector.as_ref()).await.map_err(LiveViewError::from)?;
    let disconnected = |_| unreadable("the connection ended");
    let id = cdp.send(None, "Target.getTargets", json!({})).await.map_err(disconnected)?;
    loop {
        let message = cdp.next().await.map_err(disconnected)?;
        if message.id == Some(id) {
            let targets = message.result["targetInfos"].as_array();
            let targets = targets.ok_or_else(|| unreadable("there are no targets in it"))?;
            return Ok(targets
                .iter()
                .filter(|target| !HIDDEN.iter().any(|kind| target["type"] == *kind))
                .map(target)
                .collect());
        }
    }
}

/// Returns a target as Chromium lists it.
fn target(info: &Value) -> Value {
    let (id, kind) = (&info["targetId"], &info["type"]);
    json!({ "description": "", "id": id, "title": info["title"], "type": kind, "url": info["url"] })
}

/// Bounds the time of `work`: a browser that hangs accepts connections and answers nothing.
async fn bounded<T>(limit: Duration, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = |_| ApiError::new(Code::UpstreamError, format!("the browser did not answer within {limit:?}"));
    tokio::time::timeout(limit, work).await.map_err(late)?
}

async fn exchange_with(
    connector: &dyn BrowserConnector,
    method: hyper::Method,
    path: &str,
) -> Result<(hyper::StatusCode, Bytes), ApiError> {
    let upstream = Upstream::adopt(connector.dial(Channel::Cdp).await?.stream).map_err(unreadable)?;
    let request =
        hyper::Request::builder().method(method).uri(path).header("host", CDP_HOST).header("connection", "close");
    let request = request.body(Full::new(Bytes::new())).map_err(ApiError::internal)?;
    let response = exchange(upstream, request).await.map_err(unreadable)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    Ok((status, body.map_err(unreadable)?.to_bytes()))
}

fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ApiError {
    ApiError::new(Code::UpstreamError, "the browser's answer makes no sense").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_browser_that_answers_nothing_is_not_waited_for() {
        let refused =
            bounded(Duration::from_millis(1), std::future::pending::<Result<(), _>>()).await.expect_err("no answer");
        assert_eq!(refused.code(), Code::UpstreamError);
    }
}
