//! For whoever runs the server.

use actix_web::{HttpResponse, http::StatusCode, web::Data};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    caller::OrganizationWide,
    error::{ApiError, Code, ErrorBody},
    openapi::openapi,
    state::Api,
};

/// It is well.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// Always `ok`.
    status: &'static str,
}

/// Whether the process runs.
#[utoipa::path(get, path = "/healthz", tag = "Operation", security(()), responses((status = 200, body = Status)))]
pub(crate) async fn healthz() -> HttpResponse {
    answer::record(StatusCode::OK, &Status { status: "ok" })
}

/// Whether the server can do its work.
#[utoipa::path(
    get, path = "/readyz", tag = "Operation", security(()),
    responses((status = 200, body = Status), (status = 503, description = "It cannot now", body = ErrorBody))
)]
pub(crate) async fn readyz(api: Data<Api>) -> Answer {
    match api.services.health.ready().await {
        Ok(()) => Ok(answer::record(StatusCode::OK, &Status { status: "ok" })),
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
pub(crate) async fn metrics(caller: OrganizationWide) -> HttpResponse {
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
