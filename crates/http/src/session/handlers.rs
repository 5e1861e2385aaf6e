//! The handlers of sessions: create, list, get, update, delete.

use serde::Deserialize;
use std::collections::BTreeMap;

use actix_web::{
    body::{BoxBody, to_bytes_limited},
    http::StatusCode,
    web::Bytes,
};
use casement_domain::{
    StoreError,
    access::Scope,
    browser::BrowserRegion,
    field::{FieldCode, InvalidInput},
    page::Listed,
    session::{Session, SessionFilter, SessionRequest, StatusFilter},
    telemetry::Category,
};

use super::{
    SessionBody, Urls,
    input::{CreateBrowser, UpdateBrowser},
};
use crate::{
    answer::{self, Answer},
    cluster::{self, Destination},
    error::ApiError,
    json::in_order,
    query::{DeletedParams, non_empty},
    request::{ProjectKey, Request},
    schema::IntoParams,
    state::Api,
    undelivered::UndeliveredSession,
};

/// The maximum size of the record of a new session, in bytes.
const MAX_RECORD_BYTES: usize = 4 << 20;

impl Api {
    /// Returns the present record of a session, for a caller with this scope.
    pub(crate) async fn session(&self, scope: &Scope, session: Session) -> Result<SessionBody, StoreError> {
        let mut records = self.sessions(scope, vec![session]).await?;
        Ok(records.pop().unwrap_or_else(|| unreachable!("a session has a record")))
    }

    /// Returns the present records of sessions, for a caller with this scope.
    pub(crate) async fn sessions(&self, scope: &Scope, sessions: Vec<Session>) -> Result<Vec<SessionBody>, StoreError> {
        let loaded: Vec<_> = sessions.iter().filter_map(|session| session.shape.profile).map(|one| one.id).collect();
        let profiles = self.services.profiles.of_ids(&loaded).await?;
        let (installation, now) = (self.services.sessions.installation(), self.services.clock.now());
        let public_url = self.public_url.get();
        let record = |session: Session| {
            let loaded = session.shape.profile;
            let profile = profiles.iter().find(|profile| loaded.is_some_and(|loaded| loaded.id == profile.id));
            let urls = Urls::for_caller(&public_url, &self.services.tokens, &session, scope);
            let browser = session.browser.filter(|_| session.shape.network.is_some());
            let denied = browser.map(|browser| self.services.denied_requests.of(browser)).unwrap_or_default();
            SessionBody::new(session, (profile.cloned(), denied), &urls, (installation, now))
        };
        Ok(sessions.into_iter().map(record).collect())
    }
}

pub(crate) async fn create_browser(mut request: Request<ProjectKey>) -> Answer {
    let (input, bytes) = request.json_with_bytes::<CreateBrowser>().await?;
    let engines = request.services().sessions.engines();
    let input = input.into_request(engines).map_err(in_order::<CreateBrowser>)?;
    let places = request.services().sessions.places(input.memory.as_deref());
    let make = async |request: &mut Request<ProjectKey>, elsewhere: Option<Destination>| match elsewhere {
        Some(node) => create_elsewhere(request, bytes.clone(), &node).await,
        None => create_here(request, input.clone()).await,
    };
    request.placed(places, make).await
}

async fn create_here(request: &Request<ProjectKey>, input: SessionRequest) -> Answer {
    let made = request.finish(|services, scope| async move {
        let made = services.sessions.create(&scope, input).await;
        made.map(|session| UndeliveredSession::new(session, &services))
    });
    let fresh = made.await.map_err(in_order::<CreateBrowser>)?;
    request.note_ignored_fields(fresh.session()).await;
    let location = format!("/browsers/{}", fresh.session().id);
    let body = request.api().session(request.scope(), fresh.session().clone()).await?;
    Ok(fresh.deliver(request.receipt(), answer::created(&location, &body)))
}

/// Has another node make the session. If its response does not reach the caller, the session is returned.
async fn create_elsewhere(request: &Request<ProjectKey>, body: Bytes, node: &Destination) -> Answer {
    let made = cluster::forward_bytes(request.api(), request.http(), body, node).await?;
    if !made.status().is_success() {
        return Ok(made);
    }
    let (head, body) = made.into_parts();
    let unreadable = || ApiError::internal("the answer of another node cannot be read");
    let body = to_bytes_limited(body, MAX_RECORD_BYTES).await.map_err(|_| unreadable())?.map_err(|_| unreadable())?;
    let made: MadeSession = serde_json::from_slice(&body).map_err(|_| unreadable())?;
    let id = made.session_id.parse().map_err(|_| unreadable())?;
    let session = request.services().sessions.active(id).await?;
    request.api().owners.note(&session);
    let fresh = UndeliveredSession::new(session, request.services());
    Ok(fresh.deliver(request.receipt(), head.set_body(BoxBody::new(body))))
}

/// The part of the record of a new session that names it.
#[derive(Deserialize)]
struct MadeSession {
    session_id: String,
}

/// The filter of a list of sessions.
#[derive(Deserialize, IntoParams)]
pub(super) struct BrowserListParams {
    /// `active` (default), `deleted` or `all`.
    status: Option<String>,
    /// Whether ended sessions are listed too: an older form of `status=all`. Ignored with `status`.
    include_deleted: Option<bool>,
    /// Part of the name of the session or its pool, or the whole id of the session, its profile or its proxy.
    query: Option<String>,
    /// `us-east`, `us-west`, `eu-west` or `ap-southeast`: sessions of that region. All sessions are in one.
    region: Option<String>,
    /// `tags[key]=value`: sessions with all of these tags.
    #[param(style = DeepObject, explode, required = false)]
    tags: BTreeMap<String, String>,
}

impl BrowserListParams {
    fn filter(self) -> Result<SessionFilter, ApiError> {
        let status = match self.status.as_deref() {
            None if self.include_deleted == Some(true) => StatusFilter::All,
            None | Some("active") => StatusFilter::Active,
            Some("deleted") => StatusFilter::Deleted,
            Some("all") => StatusFilter::All,
            Some(_) => return Err(ApiError::field("status", FieldCode::NotAllowed, "must be active, deleted or all")),
        };
        Ok(SessionFilter { status, query: non_empty(self.query), tags: self.tags, region: region(self.region)? })
    }
}

/// Returns the region of a filter; an empty one filters nothing.
pub(crate) fn region(text: Option<String>) -> Result<Option<BrowserRegion>, ApiError> {
    let parsed = non_empty(text).map(|text| BrowserRegion::parse(&text)).transpose();
    parsed.map_err(|bad| InvalidInput::of("region", bad).into())
}

pub(crate) async fn list_browsers(request: Request<ProjectKey>) -> Answer {
    let filter = request.query::<BrowserListParams>()?.filter()?;
    let page = request.services().sessions.list(request.scope(), &filter, request.page()?).await?;
    let Listed { items, next_offset } = page;
    let items = request.api().sessions(request.scope(), items).await?;
    Ok(answer::list(&Listed { items, next_offset }))
}

pub(crate) async fn get_browser(mut request: Request<ProjectKey>) -> Answer {
    let include_deleted = request.query::<DeletedParams>()?.include_deleted.unwrap_or(false);
    let which = request.path("id_or_name")?;
    let session = request.services().sessions.get(request.scope(), &which, include_deleted).await?;
    // Only the node of the session knows which requests its network configuration refused, and records calls as events.
    let records_calls = session.telemetry.as_ref().is_some_and(|capture| capture.includes(Category::Control));
    if (session.shape.network.is_some() || records_calls)
        && let Some(response) = request.relayed(&session).await?
    {
        return Ok(response);
    }
    request.about(&session);
    Ok(answer::record(StatusCode::OK, &request.api().session(request.scope(), session).await?))
}

pub(crate) async fn update_browser(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    if let Some(response) = request.relayed_to_owner(&which).await? {
        return Ok(response);
    }
    let input = request.json::<UpdateBrowser>().await?.into_request().map_err(in_order::<UpdateBrowser>)?;
    let changed =
        request.finish(|services, scope| async move { services.sessions.update(&scope, &which, input).await });
    let session = changed.await.map_err(in_order::<UpdateBrowser>)?;
    request.about(&session);
    let record = request.api().session(request.scope(), session).await.map_err(|error| error.with_maybe_done(true))?;
    Ok(answer::record(StatusCode::OK, &record))
}

pub(crate) async fn delete_browser(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    if let Some(response) = request.relayed_to_owner(&which).await? {
        return Ok(response);
    }
    request.finish(|services, scope| async move { services.sessions.delete(&scope, &which).await }).await?;
    Ok(answer::nothing())
}
