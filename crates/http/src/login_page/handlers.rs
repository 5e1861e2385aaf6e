//! What the page and its parts are answered.

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
    page::{self, Ended},
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
    ui::own_page,
};

/// Longest code that is looked at.
const MAX_CODE: usize = 200;

fn nothing() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such login page, or it is not this browser's")
}

/// The connection in the address.
fn connection(request: &HttpRequest) -> Option<AuthConnectionId> {
    request.match_info().get("connection_id")?.parse().ok()
}

/// Connection and key of whoever has the page's cookie, and what its login is at. The call is recorded as made with it.
async fn holder(api: &Api, request: &HttpRequest) -> Result<(AuthConnectionId, SecretString, HostedFlow), ApiError> {
    let (id, key) = connection(request).zip(cookie::of(api, request)).ok_or_else(nothing)?;
    let hosted = api.services.auth_connections.hosted(id, &key).await?;
    Identity::token(request, hosted.connection.project);
    audit::begin(request).await?;
    Ok((id, key, hosted))
}

impl From<HandoffError> for ApiError {
    fn from(error: HandoffError) -> Self {
        match error {
            HandoffError::NotFound | HandoffError::Used | HandoffError::Over => nothing(),
            HandoffError::Store(store) => store.into(),
            HandoffError::Seal(seal) => Self::internal(seal),
        }
    }
}

/// `GET /login/{connection_id}`: with the cookie, the page; with a code, a button that uses it. Changes nothing: what stands in mails and
/// chats is fetched by programs before a person does.
pub(crate) async fn open(api: Data<Api>, request: HttpRequest) -> Answer {
    let Some(id) = connection(&request) else { return Ok(page::ended(Ended::Nothing)) };
    let known = is_known(&api, &request, id).await?;
    let Some(code) = code(&request) else {
        return Ok(if known { page::page() } else { page::ended(Ended::Nothing) });
    };
    // Whoever has opened it may come by the same link again.
    if known {
        return Ok(to_page(id, None));
    }
    // Not meant to be seen yet.
    if *request.method() == Method::HEAD || ahead(&request) {
        return Ok(HttpResponse::NoContent().insert_header((header::CACHE_CONTROL, "no-store")).finish());
    }
    match api.services.auth_connections.would_open(id, &code).await {
        Ok(_) => Ok(page::door()),
        Err(error) => not_opened(error),
    }
}

/// `POST /login/{connection_id}`: uses up the code in the address, for a cookie.
pub(crate) async fn enter(api: Data<Api>, request: HttpRequest) -> Answer {
    own_page(&request)?;
    let Some(id) = connection(&request) else { return Ok(page::ended(Ended::Nothing)) };
    if is_known(&api, &request, id).await? {
        return Ok(to_page(id, None));
    }
    let Some(code) = code(&request) else { return Ok(page::ended(Ended::Nothing)) };
    let connections = &api.services.auth_connections;
    match connections.would_open(id, &code).await {
        Ok(project) => Identity::token(&request, project),
        Err(error) => return not_opened(error),
    }
    audit::begin(&request).await?;
    let key = match connections.open_hosted(id, &code).await {
        Ok(key) => key.0,
        Err(error) => return not_opened(error),
    };
    Ok(to_page(id, Some(cookie::set(&api, id, &key))))
}

/// Whether the request has the cookie of the connection's page.
async fn is_known(api: &Api, request: &HttpRequest, id: AuthConnectionId) -> Result<bool, ApiError> {
    let Some(key) = cookie::of(api, request) else { return Ok(false) };
    match api.services.auth_connections.hosted(id, &key).await {
        Ok(_) => Ok(true),
        Err(HandoffError::NotFound | HandoffError::Used | HandoffError::Over) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What a person is told whose link opens nothing.
fn not_opened(error: HandoffError) -> Answer {
    Ok(page::ended(match error {
        HandoffError::Used => Ended::Used,
        HandoffError::Over => Ended::Over,
        HandoffError::NotFound => Ended::Nothing,
        HandoffError::Store(_) | HandoffError::Seal(_) => return Err(error.into()),
    }))
}

/// The code in the address.
fn code(request: &HttpRequest) -> Option<SecretString> {
    let mut pairs = url::form_urlencoded::parse(request.query_string().as_bytes());
    let (_, code) = pairs.find(|(name, _)| name == "code")?;
    // One that is too long is none of ours, whatever it says.
    Some(code.chars().take(MAX_CODE).collect::<String>().into())
}

/// Whether a browser only prepares for the person's going there.
fn ahead(request: &HttpRequest) -> bool {
    let says =
        |name: &str| request.headers().get_all(name).any(|it| it.to_str().is_ok_and(|it| it.contains("prefetch")));
    says("sec-purpose") || says("purpose")
}

fn to_page(id: AuthConnectionId, cookie: Option<String>) -> HttpResponse {
    let mut response = HttpResponse::SeeOther();
    page::guarded(&mut response)
        .insert_header((header::LOCATION, format!("/login/{id}")))
        .insert_header((header::CACHE_CONTROL, "no-store"));
    if let Some(cookie) = cookie {
        response.insert_header((header::SET_COOKIE, cookie));
    }
    response.finish()
}

/// `GET /login/assets/{name}`: the same for everybody.
pub(crate) async fn asset(request: HttpRequest) -> Answer {
    let name = request.match_info().get("name").unwrap_or_default();
    page::asset(name).ok_or_else(|| ApiError::new(Code::NotFound, "there is no such asset"))
}

/// `GET /login/{connection_id}/live`: to the live view of the login's browser, for whoever asks to see it.
pub(crate) async fn live(api: Data<Api>, request: HttpRequest) -> Answer {
    own_page(&request)?;
    let (_, _, hosted) = holder(&api, &request).await?;
    let running = hosted.flow.is_running(api.services.clock.now());
    let url = if running { live_view_url(&api, &hosted.flow).await } else { None };
    let url = url.and_then(|url| url::Url::parse(&url).ok());
    let url = url.ok_or_else(|| ApiError::new(Code::NotFound, "the login has no browser now"))?;
    // By whatever name the person came here: the page shows nothing from elsewhere.
    let url = format!("{}?{}", url.path(), url.query().unwrap_or_default());
    let mut response = HttpResponse::SeeOther();
    response.insert_header((header::LOCATION, url)).insert_header((header::CACHE_CONTROL, "no-store"));
    Ok(response.insert_header((header::REFERRER_POLICY, "no-referrer")).finish())
}

/// `POST /login/{connection_id}/submit`: as the operation of that name, for whoever has the cookie.
pub(crate) async fn submit(api: Data<Api>, request: HttpRequest, mut payload: Payload) -> Answer {
    own_page(&request)?;
    let (id, key, _) = holder(&api, &request).await?;
    if request.headers().get(header::CONTENT_TYPE).is_none() {
        return Err(ApiError::new(Code::UnsupportedMediaType, body::NOT_JSON));
    }
    let given: SubmitBody = json::read(&body::json(&request, &mut payload).await?)?;
    let connections = api.services.auth_connections.clone();
    // Begun is done, whether or not the page waits for it.
    let submitted = tokio::spawn(async move { connections.submit_hosted(id, &key, given.into()).await });
    match submitted.await.map_err(ApiError::internal)? {
        Err(AuthConnectionError::NotFound(_)) => Err(nothing()),
        other => {
            other?;
            Ok(answer::record(StatusCode::ACCEPTED, &Submitted::new()))
        }
    }
}

/// `GET /login/{connection_id}/events`: what the login is at, now and after every change, until it is over.
pub(crate) async fn follow(api: Data<Api>, request: HttpRequest) -> Answer {
    own_page(&request)?;
    let (id, key, _) = holder(&api, &request).await?;
    // Before it is looked at again, so that nothing falls in between.
    let news = api.services.auth_connections.follow(id);
    let told = FlowPage { api, id, key, news, look: true, said: None, expires_at: None, last: None, over: false };
    let frames = stream::unfold(told, |mut told| async move { told.next().await.map(|frame| (frame, told)) });
    Ok(sse::head().streaming(frames.map(Ok::<_, actix_web::Error>)))
}

/// A page that is told what its login is at.
struct FlowPage {
    api: Data<Api>,
    id: AuthConnectionId,
    key: SecretString,
    news: Pin<Box<dyn Stream<Item = ()> + Send>>,
    /// Whether to look before anything is heard.
    look: bool,
    /// What was said last.
    said: Option<Vec<u8>>,
    expires_at: Option<OffsetDateTime>,
    last: Option<PageState>,
    over: bool,
}

impl FlowPage {
    /// The next frame; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.over {
            if !std::mem::take(&mut self.look) && !self.hear().await? {
                return Some(sse::COMMENT);
            }
            if let Some(frame) = self.see().await {
                return Some(frame);
            }
        }
        None
    }

    /// Waits until there is something to look at; `Some(false)` if nothing was heard for a while, `None` if nothing will be.
    async fn hear(&mut self) -> Option<bool> {
        // The end of its time is told by nobody, if whoever carries the login is away.
        let left = self.expires_at.map(|end| end - self.api.services.clock.now());
        let left = left.map_or(sse::KEEP_ALIVE, |left| Duration::try_from(left).unwrap_or(Duration::from_secs(1)));
        tokio::select! {
            news = self.news.next() => news.map(|()| true),
            () = tokio::time::sleep(left), if left < sse::KEEP_ALIVE => Some(true),
            () = tokio::time::sleep(sse::KEEP_ALIVE) => Some(false),
        }
    }

    /// What is to be said now, if anything is new.
    async fn see(&mut self) -> Option<Bytes> {
        let state = match self.api.services.auth_connections.hosted(self.id, &self.key).await {
            Ok(hosted) => {
                self.expires_at = Some(hosted.flow.expires_at);
                PageState::of(hosted)
            }
            // Its connection is gone, or a later login has taken its place.
            Err(HandoffError::NotFound | HandoffError::Used | HandoffError::Over) => {
                self.over = true;
                self.last.take()?.over()
            }
            // The page asks again by itself.
            Err(error) => {
                tracing::warn!(%error, "a login page could not be told");
                self.over = true;
                return None;
            }
        };
        self.over |= state.is_last();
        let frame = sse::frame(&state);
        self.last = Some(state);
        if self.said.as_deref() == Some(&*frame) {
            return None;
        }
        self.said = Some(frame.to_vec());
        Some(frame)
    }
}
