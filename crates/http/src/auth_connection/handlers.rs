//! The handlers of auth connections, except the stream.

use actix_web::http::StatusCode;
use casement_domain::auth_connection::{ConnectionFilter, FlowKind, StartedLogin};
use casement_domain::field::{FieldCode, InvalidInput, InvalidValue};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::{
    input::{CreateBody, LoginBody, SubmitBody, UpdateBody},
    record::{ConnectionBody, LoginRecord, TimelineBody, hosted_url, live_view_url},
};
use crate::{
    answer::{self, Answer, Moment},
    query::non_empty,
    request::{ProjectKey, Request},
    schema::{IntoParams, ToSchema},
};

pub(crate) async fn create_auth_connection(mut request: Request<ProjectKey>) -> Answer {
    let input = request.json::<CreateBody>().await?.into();
    let made = request.finish(|services, scope| async move { services.auth_connections.create(&scope, input).await });
    let body = ConnectionBody::of(request.api(), request.scope(), made.await?).await?;
    Ok(answer::created(&format!("/auth/connections/{}", body.id()), &body))
}

/// The filter of a list of auth connections.
#[derive(Deserialize, IntoParams)]
pub(super) struct ConnectionListParams {
    /// The whole domain.
    domain: Option<String>,
    /// The whole name of the profile.
    profile_name: Option<String>,
    /// Part of the domain or of the profile's name, or the whole id.
    query: Option<String>,
}

pub(crate) async fn list_auth_connections(request: Request<ProjectKey>) -> Answer {
    let ConnectionListParams { domain, profile_name, query } = request.query()?;
    let filter =
        ConnectionFilter { domain: non_empty(domain), profile_name: non_empty(profile_name), query: non_empty(query) };
    let found = request.services().auth_connections.list(request.scope(), &filter, request.page()?).await?;
    let mut items = Vec::new();
    for connection in found.items {
        items.push(ConnectionBody::of(request.api(), request.scope(), connection).await?);
    }
    Ok(answer::list(&casement_domain::page::Listed { items, next_offset: found.next_offset }))
}

pub(crate) async fn get_auth_connection(request: Request<ProjectKey>) -> Answer {
    let found = request.services().auth_connections.get(request.scope(), &request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ConnectionBody::of(request.api(), request.scope(), found).await?))
}

pub(crate) async fn update_auth_connection(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id")?;
    let input = request.json::<UpdateBody>().await?.into();
    let changed = request
        .finish(|services, scope| async move { services.auth_connections.update(&scope, &which, input).await })
        .await?;
    Ok(answer::record(StatusCode::OK, &ConnectionBody::of(request.api(), request.scope(), changed).await?))
}

pub(crate) async fn delete_auth_connection(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id")?;
    request.finish(|services, scope| async move { services.auth_connections.delete(&scope, &which).await }).await?;
    Ok(answer::nothing())
}

pub(crate) async fn login_auth_connection(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id")?;
    let LoginBody { proxy, record_session } = request.json().await?;
    let proxy = proxy.map(Into::into);
    let begun = request.finish(|services, scope| async move {
        services.auth_connections.login(&scope, &which, proxy, record_session).await
    });
    let StartedLogin { flow, code } = begun.await?;
    let code = code.expose_secret().to_owned();
    let record = LoginRecord {
        id: flow.connection.to_string(),
        flow_type: flow.kind.as_str(),
        hosted_url: hosted_url(request.api(), &flow, &code),
        flow_expires_at: Moment(flow.expires_at),
        live_view_url: live_view_url(request.api(), &flow).await,
        handoff_code: code,
    };
    Ok(answer::record(StatusCode::OK, &record))
}

/// The response to an accepted submission.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthSubmitted)]
pub(crate) struct Accepted {
    /// Always true. The record of the auth connection shows whether the values were correct.
    accepted: bool,
}

impl Accepted {
    pub(crate) const fn new() -> Self {
        Self { accepted: true }
    }
}

pub(crate) async fn submit_auth_connection(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id")?;
    let given = request.json::<SubmitBody>().await?.into();
    request
        .finish(|services, scope| async move { services.auth_connections.submit(&scope, &which, given).await })
        .await?;
    Ok(answer::record(StatusCode::ACCEPTED, &Accepted::new()))
}

/// The filter of a timeline.
#[derive(Deserialize, IntoParams)]
pub(super) struct TimelineParams {
    /// `login`, `reauth` or `health_check`.
    r#type: Option<String>,
}

pub(crate) async fn list_auth_connection_timeline(request: Request<ProjectKey>) -> Answer {
    let TimelineParams { r#type } = request.query()?;
    let kind = match non_empty(r#type).as_deref() {
        None => None,
        Some("login") => Some(FlowKind::Login),
        Some("reauth") => Some(FlowKind::Reauth),
        Some("health_check") => Some(FlowKind::HealthCheck),
        Some(_) => {
            let bad = InvalidValue::new(FieldCode::NotAllowed, "must be login, reauth or health_check");
            return Err(InvalidInput::of("type", bad).into());
        }
    };
    let (which, page) = (request.path("id")?, request.page()?);
    let found = request.services().auth_connections.timeline(request.scope(), &which, kind, page).await?;
    Ok(answer::list(&found.map(TimelineBody::from)))
}
