//! Create, list, get, update, delete.

use actix_web::http::StatusCode;
use casement_domain::{
    StoreError,
    field::FieldCode,
    page::Listed,
    session::{Session, SessionFilter, StatusFilter},
};

use super::{
    SessionBody, Urls,
    input::{CreateBrowser, UpdateBrowser},
};
use crate::{
    answer::{self, Answer},
    caller::Authorized,
    error::{ApiError, ErrorBody},
    json::in_order,
    query::Query,
    state::Api,
    undelivered::UndeliveredSession,
};

impl Api {
    /// The record of a session as it is now.
    pub(crate) async fn session(&self, session: Session) -> Result<SessionBody, StoreError> {
        let mut records = self.sessions(vec![session]).await?;
        Ok(records.pop().unwrap_or_else(|| unreachable!("a session has a record")))
    }

    /// The records of sessions as they are now.
    pub(crate) async fn sessions(&self, sessions: Vec<Session>) -> Result<Vec<SessionBody>, StoreError> {
        let loaded: Vec<_> = sessions.iter().filter_map(|session| session.shape.profile).map(|one| one.id).collect();
        let profiles = self.services.profiles.of_ids(&loaded).await?;
        let record = |session: Session| {
            let loaded = session.shape.profile;
            let profile = profiles.iter().find(|profile| loaded.is_some_and(|loaded| loaded.id == profile.id));
            let urls = Urls::new(&self.public_url, &self.services.tokens, &session);
            SessionBody::new(session, profile.cloned(), &urls, self.services.clock.now())
        };
        Ok(sessions.into_iter().map(record).collect())
    }
}

/// Creates a session, ready to use.
#[utoipa::path(
    post, path = "/browsers", tag = "Browsers", request_body = CreateBrowser,
    responses(
        (status = 201, body = SessionBody),
        (status = 400, description = "A field breaks a rule, or cannot be done here", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 409, description = "The name is taken", body = ErrorBody),
        (status = 429, description = "A limit is reached", body = ErrorBody),
        (status = "5XX", description = "No browser could be started", body = ErrorBody),
    )
)]
pub(crate) async fn create_browser(mut caller: Authorized) -> Answer {
    let wish = caller.json::<CreateBrowser>().await?.into_request().map_err(in_order::<CreateBrowser>)?;
    let made = caller.finish(|services, scope| async move {
        let made = services.sessions.create(&scope, wish).await;
        made.map(|session| UndeliveredSession::new(session, &services))
    });
    let fresh = made.await.map_err(in_order::<CreateBrowser>)?;
    let location = format!("/browsers/{}", fresh.session().id);
    let body = caller.api().session(fresh.session().clone()).await?;
    Ok(fresh.deliver(caller.receipt(), answer::created(&location, &body)))
}

/// Lists sessions, newest first.
#[utoipa::path(
    get, path = "/browsers", tag = "Browsers",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("status" = Option<String>, Query, description = "active (default), deleted or all"),
        ("include_deleted" = Option<bool>, Query, description = "An older form of status=all"),
        ("query" = Option<String>, Query, description = "Part of the name of the session or its pool, or the whole id of the session, its profile or its proxy"),
        ("tags" = Option<std::collections::BTreeMap<String, String>>, Query, style = DeepObject, explode,
            description = "tags[key]=value: all of these pairs"),
    ),
    responses(
        (status = 200, body = [SessionBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_browsers(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let filter = filter(&query)?;
    let page = caller.services().sessions.list(caller.scope(), &filter, query.page()?).await?;
    let Listed { items, next_offset } = page;
    let items = caller.api().sessions(items).await?;
    Ok(answer::list(&Listed { items, next_offset }))
}

fn filter(query: &Query) -> Result<SessionFilter, ApiError> {
    let include_deleted = query.boolean("include_deleted")?.unwrap_or(false);
    let status = match query.text("status")? {
        None if include_deleted => StatusFilter::All,
        None | Some("active") => StatusFilter::Active,
        Some("deleted") => StatusFilter::Deleted,
        Some("all") => StatusFilter::All,
        Some(_) => return Err(ApiError::field("status", FieldCode::NotAllowed, "must be active, deleted or all")),
    };
    let text = query.text("query")?.filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(SessionFilter { status, query: text, tags: query.map("tags")? })
}

/// Reads a session.
#[utoipa::path(
    get, path = "/browsers/{id_or_name}", tag = "Browsers",
    params(
        ("id_or_name" = String, Path),
        ("include_deleted" = Option<bool>, Query, description = "Find it after its end, too; default: false"),
    ),
    responses(
        (status = 200, body = SessionBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_browser(caller: Authorized) -> Answer {
    let include_deleted = caller.query()?.boolean("include_deleted")?.unwrap_or(false);
    let which = caller.path("id_or_name")?;
    let session = caller.services().sessions.get(caller.scope(), &which, include_deleted).await?;
    caller.about(&session);
    Ok(answer::record(StatusCode::OK, &caller.api().session(session).await?))
}

/// Changes an active session.
#[utoipa::path(
    patch, path = "/browsers/{id_or_name}", tag = "Browsers", request_body = UpdateBrowser,
    params(("id_or_name" = String, Path)),
    responses(
        (status = 200, body = SessionBody),
        (status = 400, description = "A field breaks a rule, or cannot be done here", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = 409, description = "The name is taken, or somebody watches", body = ErrorBody),
        (status = "5XX", description = "The browser or the database is away", body = ErrorBody),
    )
)]
pub(crate) async fn update_browser(mut caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let wish = caller.json::<UpdateBrowser>().await?.into_request().map_err(in_order::<UpdateBrowser>)?;
    let changed = caller.finish(|services, scope| async move { services.sessions.update(&scope, &which, wish).await });
    let session = changed.await.map_err(in_order::<UpdateBrowser>)?;
    caller.about(&session);
    let record = caller.api().session(session).await.map_err(|error| error.with_maybe_done(true))?;
    Ok(answer::record(StatusCode::OK, &record))
}

/// Ends a session. Answers once nothing of its browser is left.
#[utoipa::path(
    delete, path = "/browsers/{id_or_name}", tag = "Browsers",
    params(("id_or_name" = String, Path)),
    responses(
        (status = 204, description = "It has ended"),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_browser(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    caller.finish(|services, scope| async move { services.sessions.delete(&scope, &which).await }).await?;
    Ok(answer::nothing())
}
