//! One handler for each operation but the stream.

use actix_web::http::StatusCode;
use casement_domain::auth_connection::{ConnectionFilter, FlowKind, StartedLogin};
use casement_domain::field::{FieldCode, InvalidInput, InvalidValue};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    input::{CreateBody, LoginBody, SubmitBody, UpdateBody},
    record::{ConnectionBody, LoginRecord, TimelineBody, hosted_url, live_view_url},
};
use crate::{
    answer::{self, Answer, Moment},
    caller::Authorized,
    error::{ApiError, ErrorBody},
};

/// Makes an auth connection, and its profile if there is none of that name.
#[utoipa::path(
    post, path = "/auth/connections", tag = "Auth connections", request_body = CreateBody,
    responses(
        (status = 201, body = ConnectionBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 409, description = "The profile has a connection to that domain", body = ErrorBody),
        (status = 429, description = "The project has as many as it may have", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn create_auth_connection(mut caller: Authorized) -> Answer {
    let wish = caller.json::<CreateBody>().await?.into();
    let made = caller.finish(|services, scope| async move { services.auth_connections.create(&scope, wish).await });
    let body = ConnectionBody::of(caller.api(), made.await?).await?;
    Ok(answer::created(&format!("/auth/connections/{}", body.id()), &body))
}

/// Lists auth connections, newest first.
#[utoipa::path(
    get, path = "/auth/connections", tag = "Auth connections",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("domain" = Option<String>, Query, description = "The whole domain"),
        ("profile_name" = Option<String>, Query, description = "The whole name of the profile"),
        ("query" = Option<String>, Query, description = "Part of domain or profile name, or a whole id"),
    ),
    responses(
        (status = 200, body = [ConnectionBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_auth_connections(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter =
        ConnectionFilter { domain: given("domain")?, profile_name: given("profile_name")?, query: given("query")? };
    let found = caller.services().auth_connections.list(caller.scope(), &filter, query.page()?).await?;
    let mut items = Vec::new();
    for connection in found.items {
        items.push(ConnectionBody::of(caller.api(), connection).await?);
    }
    Ok(answer::list(&casement_domain::page::Listed { items, next_offset: found.next_offset }))
}

/// Reads one auth connection.
#[utoipa::path(
    get, path = "/auth/connections/{id}", tag = "Auth connections", params(("id" = String, Path)),
    responses(
        (status = 200, body = ConnectionBody),
        (status = 404, description = "There is no such connection", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_auth_connection(caller: Authorized) -> Answer {
    let found = caller.services().auth_connections.get(caller.scope(), &caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ConnectionBody::of(caller.api(), found).await?))
}

/// Changes what is given of an auth connection. A login that goes on does so with what was before.
#[utoipa::path(
    patch, path = "/auth/connections/{id}", tag = "Auth connections", params(("id" = String, Path)),
    request_body = UpdateBody,
    responses(
        (status = 200, body = ConnectionBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 404, description = "There is no such connection", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn update_auth_connection(mut caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    let wish = caller.json::<UpdateBody>().await?.into();
    let changed = caller
        .finish(|services, scope| async move { services.auth_connections.update(&scope, &which, wish).await })
        .await?;
    Ok(answer::record(StatusCode::OK, &ConnectionBody::of(caller.api(), changed).await?))
}

/// Deletes an auth connection. Its login is cancelled; its profile stays as it is.
#[utoipa::path(
    delete, path = "/auth/connections/{id}", tag = "Auth connections", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is gone"),
        (status = 403, description = "The key does not open this project", body = ErrorBody),
        (status = 404, description = "There is no such connection", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_auth_connection(caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    caller.finish(|services, scope| async move { services.auth_connections.delete(&scope, &which).await }).await?;
    Ok(answer::nothing())
}

/// Begins a login, or answers the one that goes on. What comes of it is seen in the record and the stream.
#[utoipa::path(
    post, path = "/auth/connections/{id}/login", tag = "Auth connections", params(("id" = String, Path)),
    request_body = LoginBody,
    responses(
        (status = 200, body = LoginRecord),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 404, description = "There is no such connection", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn login_auth_connection(mut caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    let LoginBody { proxy, record_session } = caller.json().await?;
    let proxy = proxy.map(Into::into);
    let begun = caller.finish(|services, scope| async move {
        services.auth_connections.login(&scope, &which, proxy, record_session).await
    });
    let StartedLogin { flow, code } = begun.await?;
    let code = code.expose_secret().to_owned();
    let record = LoginRecord {
        id: flow.connection.to_string(),
        flow_type: flow.kind.as_str(),
        hosted_url: hosted_url(caller.api(), &flow, &code),
        flow_expires_at: Moment(flow.expires_at),
        live_view_url: live_view_url(caller.api(), &flow).await,
        handoff_code: code,
    };
    Ok(answer::record(StatusCode::OK, &record))
}

/// Said of a submission that was taken.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthSubmitted)]
pub(crate) struct Accepted {
    /// Always true: whether it was right shows in the record.
    accepted: bool,
}

impl Accepted {
    pub(crate) const fn new() -> Self {
        Self { accepted: true }
    }
}

/// Takes what a login waits for.
#[utoipa::path(
    post, path = "/auth/connections/{id}/submit", tag = "Auth connections", params(("id" = String, Path)),
    request_body = SubmitBody,
    responses(
        (status = 202, body = Accepted),
        (status = 400, description = "What is given is not waited for, or something is missing", body = ErrorBody),
        (status = 404, description = "There is no such connection", body = ErrorBody),
        (status = 409, description = "No login waits", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn submit_auth_connection(mut caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    let given = caller.json::<SubmitBody>().await?.into();
    caller
        .finish(|services, scope| async move { services.auth_connections.submit(&scope, &which, given).await })
        .await?;
    Ok(answer::record(StatusCode::ACCEPTED, &Accepted::new()))
}

/// Lists what happened to an auth connection, newest first.
#[utoipa::path(
    get, path = "/auth/connections/{id}/timeline", tag = "Auth connections",
    params(
        ("id" = String, Path),
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("type" = Option<String>, Query, description = "`login`, `reauth` or `health_check`"),
    ),
    responses(
        (status = 200, body = [TimelineBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such connection", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_auth_connection_timeline(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let kind = match query.text("type")?.filter(|text| !text.is_empty()) {
        None => None,
        Some("login") => Some(FlowKind::Login),
        Some("reauth") => Some(FlowKind::Reauth),
        Some("health_check") => Some(FlowKind::HealthCheck),
        Some(_) => {
            let bad = InvalidValue::new(FieldCode::NotAllowed, "must be login, reauth or health_check");
            return Err(InvalidInput::of("type", bad).into());
        }
    };
    let (which, page) = (caller.path("id")?, query.page()?);
    let found = caller.services().auth_connections.timeline(caller.scope(), &which, kind, page).await?;
    Ok(answer::list(&found.map(TimelineBody::from)))
}
