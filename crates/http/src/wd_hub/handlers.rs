//! The handlers of `/wd/hub`.

use actix_web::{HttpRequest, HttpResponse, body::to_bytes_limited, http::header};
use casement_domain::{
    session::{Session, SessionEvent},
    untrusted_json,
};
use serde_json::{Value, json};
use tracing::Instrument as _;
use url::Url;

use super::capabilities::{self, NewSession};
use crate::{
    answer::Answer,
    body,
    cluster::{self, Destination},
    connect::{Made, make},
    error::{ApiError, Code},
    request::{HubClient, ProjectKey, Public, Request},
    session::Urls,
    vm,
    webdriver::MAX_NEW_SESSION_BYTES,
};

/// The maximum size of chromedriver's answer to a new session, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// `GET /wd/hub/status`.
pub(super) async fn status(request: Request<Public>) -> HttpResponse {
    let ready = request.services().health.ready().await.is_ok();
    let message = if ready { "new sessions can be made" } else { "no session can be made now" };
    answer(json!({ "ready": ready, "message": message }))
}

/// Returns a response of the protocol, which requires the header.
fn answer(value: Value) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-cache")).json(json!({ "value": value }))
}

/// `POST /wd/hub/session`: makes a session and a WebDriver session in it.
pub(super) async fn create(_: HttpRequest, request: Result<Request<ProjectKey>, ApiError>) -> Answer {
    new_session(request).await.map_err(ApiError::for_new_webdriver_session)
}

async fn new_session(request: Result<Request<ProjectKey>, ApiError>) -> Answer {
    let mut request = request?;
    let body = body::read(&mut request.take_payload()?, MAX_NEW_SESSION_BYTES).await?;
    let whole = body;
    let NewSession { options, body, downloads } = capabilities::read(&whole)?;
    let forward = async |request: &mut Request<ProjectKey>, node: &Destination| {
        cluster::forward_bytes(request.api(), request.http(), whole.clone(), node).await
    };
    let started = match make(&mut request, &options, forward).await? {
        Made::Here(started) => *started,
        Made::Elsewhere(response) => return Ok(response),
    };
    let (api, receipt, session) = (request.shared_api(), request.receipt(), started.session().clone());
    let answered = match request.elsewhere(&session, Some(format!("/vm/{}/wd/session", session.id))) {
        Some(owner) => cluster::forward_bytes(&api, request.http(), body, &owner).await?,
        None => vm::run_command(request.into_session(session.clone())?, "session", body).await?.response,
    };
    if !answered.status().is_success() {
        // The session ends with `started`.
        return Ok(answered);
    }
    let unreadable = || ApiError::new(Code::UpstreamError, "chromedriver's answer makes no sense");
    let body = to_bytes_limited(answered.into_body(), MAX_ANSWER_BYTES).await.map_err(|_| unreadable())?;
    let body = body.map_err(|_| unreadable())?;
    let mut body: Value = untrusted_json::parse(&body).map_err(|error| unreadable().caused_by(error))?;
    let urls = Urls::new(&api.public_url.get(), &api.services.tokens, &session);
    rewrite(&mut body["value"], &session, &urls, downloads);
    add_direct_address(&mut body["value"]["capabilities"], &urls.hub());
    Ok(started.deliver(receipt, answer(body["value"].take())))
}

/// Replaces chromedriver's id, and adds the addresses of the session.
fn rewrite(value: &mut Value, session: &Session, urls: &Urls<'_>, downloads: bool) {
    if let Some(Value::String(id)) = value.get_mut("sessionId") {
        *id = format!("{}-{id}", session.id);
    }
    let Some(Value::Object(capabilities)) = value.get_mut("capabilities") else { return };
    // Its debugger address is one inside of the session.
    capabilities.remove("goog:chromeOptions");
    let version = capabilities.get("browserVersion").cloned().unwrap_or_default();
    capabilities.insert("se:cdp".to_owned(), urls.cdp().into());
    capabilities.insert("se:cdpVersion".to_owned(), version);
    capabilities.insert("casement:sessionId".to_owned(), session.id.to_string().into());
    if downloads {
        capabilities.insert("se:downloadsEnabled".to_owned(), true.into());
    }
}

/// Adds the address that WebdriverIO uses from now on, with the session's token: it sends `user` and `key` with the
/// first request only.
fn add_direct_address(capabilities: &mut Value, address: &str) {
    let (Value::Object(capabilities), Ok(url)) = (capabilities, Url::parse(address)) else { return };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { return };
    for (name, value) in [
        ("Protocol", Value::from(url.scheme())),
        ("Host", host.into()),
        ("Port", port.into()),
        ("Path", url.path().into()),
    ] {
        capabilities.insert(format!("appium:directConnect{name}"), value);
    }
}

/// `DELETE /wd/hub/session/{id}`: ends the session.
pub(super) async fn delete(_: HttpRequest, request: Result<Request<HubClient>, ApiError>) -> Answer {
    end(request).await.map_err(ApiError::for_webdriver)
}

async fn end(request: Result<Request<HubClient>, ApiError>) -> Answer {
    let request = request?;
    let (api, id) = (request.shared_api(), request.session().id);
    let sessions = api.services.sessions.clone();
    // Runs to its end, even if the caller disconnects.
    let ended = async move { sessions.end(id, SessionEvent::Delete).await };
    api.services.runtime.spawn(ended.in_current_span()).await.map_err(ApiError::internal)??;
    Ok(answer(Value::Null))
}

/// `/wd/hub/session/{id}/{tail}`: forwards a command to the session's chromedriver.
pub(crate) async fn command(request: Result<Request<HubClient>, ApiError>) -> Answer {
    forward(request).await.map_err(ApiError::for_webdriver)
}

async fn forward(request: Result<Request<HubClient>, ApiError>) -> Answer {
    let request = request?;
    // `/wd/hub/session/{id}/{command}`; it is not decoded, because it is forwarded.
    let mut segments = request.http().uri().path().splitn(6, '/').skip(4);
    let (id, command) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    let (_, id) = id.split_once('-').ok_or_else(|| ApiError::new(Code::NotFound, "there is no such session"))?;
    let tail = format!("session/{id}/{command}");
    vm::read_and_run(request, &tail).await
}
