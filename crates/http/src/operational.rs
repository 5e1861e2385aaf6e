//! For whoever runs the server.

use actix_web::{HttpResponse, http::StatusCode, web::Data};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    caller::OrganizationCaller,
    error::{ApiError, Code, ErrorBody},
    openapi::openapi,
    state::{Api, Readiness},
};

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// `ok`; of `/readyz` also `degraded`: the server does its work, but leaves out what can be missed.
    status: &'static str,
    /// What is left out, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

impl Status {
    const OK: Self = Self { status: "ok", detail: None };
}

/// Whether the process runs.
#[utoipa::path(get, path = "/healthz", tag = "Operation", security(()), responses((status = 200, body = Status)))]
pub(crate) async fn healthz() -> HttpResponse {
    answer::record(StatusCode::OK, &Status::OK)
}

/// Whether the server can do its work.
#[utoipa::path(
    get, path = "/readyz", tag = "Operation", security(()),
    responses((status = 200, body = Status), (status = 503, description = "It cannot now", body = ErrorBody))
)]
pub(crate) async fn readyz(api: Data<Api>) -> Answer {
    match api.services.health.ready().await {
        Ok(Readiness::Whole) => Ok(answer::record(StatusCode::OK, &Status::OK)),
        Ok(Readiness::Degraded(detail)) => {
            Ok(answer::record(StatusCode::OK, &Status { status: "degraded", detail: Some(detail) }))
        }
        Err(what) => Err(ApiError::new(Code::Unavailable, "the server is not ready").caused_by(what)),
    }
}

/// Figures, as Prometheus reads them.
#[utoipa::path(
    get, path = "/metrics", tag = "Operation",
    responses(
        (status = 200, body = String, content_type = "text/plain"),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
    )
)]
pub(crate) async fn metrics(caller: OrganizationCaller) -> HttpResponse {
    let text = (caller.services().metrics)();
    HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(text)
}

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", tag = "Operation", security(()),
    responses((status = 200, body = String, content_type = "application/json"))
)]
pub(crate) async fn description() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(openapi())
}
