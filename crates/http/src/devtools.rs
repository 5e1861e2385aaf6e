//! The HTTP endpoints of the DevTools protocol below a session: its version and its targets, with the session's own
//! addresses in place of the browser's. A remote browser has only its browser-wide WebSocket, from which they are made.

use std::{sync::Arc, time::Duration};

use actix_web::HttpResponse;
use bytes::Bytes;
use casement_domain::{NotFound, engine::Capability, session::ActivityGuard, untrusted_json};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    error::{ApiError, Code},
    live_view::{Cdp, LiveViewError},
    relay::{BrowserConnector, CDP_HOST, Channel, ClientHandshake, RemoteSessionInfo, Upstream, exchange},
    request::{ActiveSession, Request},
    session::Urls,
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
    for target in targets.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        FRONTENDS.iter().for_each(|name| drop(target.remove(*name)));
        match target.get("id").and_then(Value::as_str).filter(|id| is_target(id)).map(|id| urls.cdp_of_target(id)) {
            Some(socket) => target.insert(SOCKET.to_owned(), socket.into()),
            None => target.remove(SOCKET),
        };
    }
    Ok(HttpResponse::Ok().json(targets))
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
    Urls::new(&request.api().public_url, &request.services().tokens, request.session())
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
        bounded(MAX_READ, get(self.connector.as_ref(), path)).await
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
async fn bounded(limit: Duration, work: impl Future<Output = Result<Value, ApiError>>) -> Result<Value, ApiError> {
    let late = |_| ApiError::new(Code::UpstreamError, format!("the browser did not answer within {limit:?}"));
    tokio::time::timeout(limit, work).await.map_err(late)?
}

async fn get(connector: &dyn BrowserConnector, path: &str) -> Result<Value, ApiError> {
    let upstream = Upstream::adopt(connector.dial(Channel::Cdp).await?.stream).map_err(unreadable)?;
    let get = hyper::Request::get(path).header("host", CDP_HOST).header("connection", "close");
    let response = exchange(upstream, get.body(Full::new(Bytes::new())).map_err(ApiError::internal)?).await;
    let body = Limited::new(response.map_err(unreadable)?.into_body(), MAX_RESPONSE_BYTES).collect().await;
    untrusted_json::parse(&body.map_err(unreadable)?.to_bytes()).map_err(unreadable)
}

fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ApiError {
    ApiError::new(Code::UpstreamError, "the browser's answer makes no sense").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_browser_that_answers_nothing_is_not_waited_for() {
        let refused = bounded(Duration::from_millis(1), std::future::pending()).await.expect_err("no answer");
        assert_eq!(refused.code(), Code::UpstreamError);
    }
}
