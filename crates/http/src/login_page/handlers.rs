//! The handlers of the hosted login page and its requests.

use std::pin::Pin;
use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode, header},
    web::{Bytes, Data, Payload},
};
use casement_domain::{
    AuthConnectionId,
    auth_connection::{AuthConnectionError, HandoffError, HostedFlow},
};
use futures_util::{Stream, StreamExt as _, stream};
use secrecy::SecretString;
use time::OffsetDateTime;

use super::{
    cookie,
    page::{self, LinkError},
    state::PageState,
};
use crate::{
    answer::{self, Answer},
    audit::{self, Identity},
    auth_connection::{SubmitBody, Submitted, live_view_url},
    body,
    error::{ApiError, Code},
    json, sse,
    state::Api,
    ui::{add_security_headers, check_own_page},
};

/// The maximum length of a code; longer ones cannot be valid.
const MAX_CODE_CHARS: usize = 200;

fn not_found() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such login page, or it is not this browser's")
}

/// Returns the id of the connection in the path.
fn connection(request: &HttpRequest) -> Option<AuthConnectionId> {
    request.match_info().get("connection_id")?.parse().ok()
}

/// Returns the connection, the cookie's key and the login for a request with the page's cookie. Sets the project of the
/// audit record.
async fn holder(api: &Api, request: &HttpRequest) -> Result<(AuthConnectionId, SecretString, HostedFlow), ApiError> {
    let (id, key) = connection(request).zip(cookie::read(api, request)).ok_or_else(not_found)?;
    let hosted = api.services.auth_connections.hosted(id, &key).await?;
    Identity::token(request, hosted.connection.project);
    audit::begin(request).await?;
    Ok((id, key, hosted))
}

impl From<HandoffError> for ApiError {
    fn from(error: HandoffError) -> Self {
        match error {
            HandoffError::NotFound | HandoffError::Used | HandoffError::Over => not_found(),
            HandoffError::Store(store) => store.into(),
            HandoffError::Seal(seal) => Self::internal(seal),
        }
    }
}

/// `GET /login/{connection_id}`: returns the login page if the cookie is valid; with a code, a page with a button that
/// uses the code. Changes nothing, because programs prefetch links in mails and chats.
pub(crate) async fn open(api: Data<Api>, request: HttpRequest) -> Answer {
    let Some(id) = connection(&request) else { return Ok(page::error_page(LinkError::NotFound)) };
    let has_access = has_access(&api, &request, id).await?;
    let Some(code) = code(&request) else {
        return Ok(if has_access { page::page() } else { page::error_page(LinkError::NotFound) });
    };
    // A person who has opened the page may follow the same link again.
    if has_access {
        return Ok(redirect_to_page(id, None));
    }
    // A prefetch must not show the page.
    if *request.method() == Method::HEAD || is_prefetch(&request) {
        return Ok(HttpResponse::NoContent().insert_header((header::CACHE_CONTROL, "no-store")).finish());
    }
    match api.services.auth_connections.would_open(id, &code).await {
        Ok(_) => Ok(page::start_page()),
        Err(error) => link_error(error),
    }
}

/// `POST /login/{connection_id}`: exchanges the code in the URL for a cookie.
pub(crate) async fn enter(api: Data<Api>, request: HttpRequest) -> Answer {
    check_own_page(&request)?;
    let Some(id) = connection(&request) else { return Ok(page::error_page(LinkError::NotFound)) };
    if has_access(&api, &request, id).await? {
        return Ok(redirect_to_page(id, None));
    }
    let Some(code) = code(&request) else { return Ok(page::error_page(LinkError::NotFound)) };
    let connections = &api.services.auth_connections;
    match connections.would_open(id, &code).await {
        Ok(project) => Identity::token(&request, project),
        Err(error) => return link_error(error),
    }
    audit::begin(&request).await?;
    let key = match connections.open_hosted(id, &code).await {
        Ok(key) => key.0,
        Err(error) => return link_error(error),
    };
    Ok(redirect_to_page(id, Some(cookie::set(&api, id, &key))))
}

/// Returns whether the request has a valid cookie of the connection's page.
async fn has_access(api: &Api, request: &HttpRequest, id: AuthConnectionId) -> Result<bool, ApiError> {
    let Some(key) = cookie::read(api, request) else { return Ok(false) };
    match api.services.auth_connections.hosted(id, &key).await {
        Ok(_) => Ok(true),
        Err(HandoffError::NotFound | HandoffError::Used | HandoffError::Over) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the error page for a link that cannot be opened.
fn link_error(error: HandoffError) -> Answer {
    Ok(page::error_page(match error {
        HandoffError::Used => LinkError::Used,
        HandoffError::Over => LinkError::Ended,
        HandoffError::NotFound => LinkError::NotFound,
        HandoffError::Store(_) | HandoffError::Seal(_) => return Err(error.into()),
    }))
}

/// Returns the code in the URL.
fn code(request: &HttpRequest) -> Option<SecretString> {
    let mut pairs = url::form_urlencoded::parse(request.query_string().as_bytes());
    let (_, code) = pairs.find(|(name, _)| name == "code")?;
    // A code that is too long is truncated, and so invalid.
    Some(code.chars().take(MAX_CODE_CHARS).collect::<String>().into())
}

/// Returns whether a browser only prefetches the page.
fn is_prefetch(request: &HttpRequest) -> bool {
    let has_prefetch = |name: &str| {
        request.headers().get_all(name).any(|value| value.to_str().is_ok_and(|value| value.contains("prefetch")))
    };
    has_prefetch("sec-purpose") || has_prefetch("purpose")
}

fn redirect_to_page(id: AuthConnectionId, cookie: Option<String>) -> HttpResponse {
    let mut response = HttpResponse::SeeOther();
    add_security_headers(&mut response, page::POLICY)
        .insert_header((header::LOCATION, format!("/login/{id}")))
        .insert_header((header::CACHE_CONTROL, "no-store"));
    if let Some(cookie) = cookie {
        response.insert_header((header::SET_COOKIE, cookie));
    }
    response.finish()
}

/// `GET /login/assets/{name}`: returns an asset, which is the same for everybody.
pub(crate) async fn asset(request: HttpRequest) -> Answer {
    let name = request.match_info().get("name").unwrap_or_default();
    page::asset(name).ok_or_else(|| ApiError::new(Code::NotFound, "there is no such asset"))
}

/// `GET /login/{connection_id}/live`: redirects to the live view of the login's browser.
pub(crate) async fn live(api: Data<Api>, request: HttpRequest) -> Answer {
    check_own_page(&request)?;
    let (_, _, hosted) = holder(&api, &request).await?;
    let running = hosted.flow.is_running(api.services.clock.now());
    let url = if running { live_view_url(&api, &hosted.flow).await } else { None };
    let url = url.and_then(|url| url::Url::parse(&url).ok());
    let url = url.ok_or_else(|| ApiError::new(Code::NotFound, "the login has no browser now"))?;
    // The redirect is relative, so that it keeps the host name of the request; the page may not embed other origins.
    let url = format!("{}?{}", url.path(), url.query().unwrap_or_default());
    let mut response = HttpResponse::SeeOther();
    response.insert_header((header::LOCATION, url)).insert_header((header::CACHE_CONTROL, "no-store"));
    Ok(response.insert_header((header::REFERRER_POLICY, "no-referrer")).finish())
}

/// `POST /login/{connection_id}/submit`: submits input as `submit_auth_connection` does, authorized by the cookie.
pub(crate) async fn submit(api: Data<Api>, request: HttpRequest, mut payload: Payload) -> Answer {
    check_own_page(&request)?;
    let (id, key, _) = holder(&api, &request).await?;
    if request.headers().get(header::CONTENT_TYPE).is_none() {
        return Err(ApiError::new(Code::UnsupportedMediaType, body::NOT_JSON));
    }
    let input: SubmitBody = json::read(&body::json(&request, &mut payload).await?)?;
    let connections = api.services.auth_connections.clone();
    // A submission that has started is completed, whether or not the page waits for it.
    let submitted = tokio::spawn(async move { connections.submit_hosted(id, &key, input.into()).await });
    match submitted.await.map_err(ApiError::internal)? {
        Err(AuthConnectionError::NotFound(_)) => Err(not_found()),
        other => {
            other?;
            Ok(answer::record(StatusCode::ACCEPTED, &Submitted::new()))
        }
    }
}

/// `GET /login/{connection_id}/events`: streams the state of the login, now and after every change, until the login has
/// ended.
pub(crate) async fn follow(api: Data<Api>, request: HttpRequest) -> Answer {
    check_own_page(&request)?;
    let (id, key, _) = holder(&api, &request).await?;
    // Subscribes before the state is read, so that no change is missed.
    let changes = api.services.auth_connections.follow(id);
    let states = FlowStates {
        api,
        id,
        key,
        changes,
        must_read: true,
        last_frame: None,
        expires_at: None,
        last_state: None,
        has_ended: false,
    };
    let frames = stream::unfold(states, |mut states| async move { states.next().await.map(|frame| (frame, states)) });
    Ok(sse::response(frames))
}

/// The stream of states of a login for one page.
struct FlowStates {
    api: Data<Api>,
    id: AuthConnectionId,
    key: SecretString,
    changes: Pin<Box<dyn Stream<Item = ()> + Send>>,
    /// Whether the state must be read before the first change.
    must_read: bool,
    /// The frame that was sent last.
    last_frame: Option<Vec<u8>>,
    expires_at: Option<OffsetDateTime>,
    last_state: Option<PageState>,
    has_ended: bool,
}

impl FlowStates {
    /// Returns the next frame; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.has_ended {
            if !std::mem::take(&mut self.must_read) && !self.wait_for_change().await? {
                return Some(sse::KEEP_ALIVE_COMMENT);
            }
            if let Some(frame) = self.read_state().await {
                return Some(frame);
            }
        }
        None
    }

    /// Waits until the state may have changed; `Some(false)` after a silent interval, `None` if no change can follow.
    async fn wait_for_change(&mut self) -> Option<bool> {
        // The expiry is not reported as a change if the node that runs the login is down.
        let left = self.expires_at.map(|end| end - self.api.services.clock.now());
        let left =
            left.map_or(sse::KEEP_ALIVE_INTERVAL, |left| Duration::try_from(left).unwrap_or(Duration::from_secs(1)));
        tokio::select! {
            change = self.changes.next() => change.map(|()| true),
            () = tokio::time::sleep(left), if left < sse::KEEP_ALIVE_INTERVAL => Some(true),
            () = tokio::time::sleep(sse::KEEP_ALIVE_INTERVAL) => Some(false),
        }
    }

    /// Reads the state and returns its frame, if it differs from the last one.
    async fn read_state(&mut self) -> Option<Bytes> {
        let state = match self.api.services.auth_connections.hosted(self.id, &self.key).await {
            Ok(hosted) => {
                self.expires_at = Some(hosted.flow.expires_at);
                PageState::new(hosted)
            }
            // The connection was deleted, or a later login has replaced this one.
            Err(HandoffError::NotFound | HandoffError::Used | HandoffError::Over) => {
                self.has_ended = true;
                self.last_state.take()?.canceled()
            }
            // The page reconnects automatically.
            Err(error) => {
                tracing::warn!(%error, "cannot read the state of a login for its page");
                self.has_ended = true;
                return None;
            }
        };
        self.has_ended |= state.is_last();
        let frame = sse::frame(&state);
        self.last_state = Some(state);
        if self.last_frame.as_deref() == Some(&*frame) {
            return None;
        }
        self.last_frame = Some(frame.to_vec());
        Some(frame)
    }
}
