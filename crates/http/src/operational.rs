//! The operations for the operator of the server: health, readiness, metrics and the OpenAPI document.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderMap, HeaderValue},
    },
};
use serde::Serialize;

use crate::{
    active_requests::SharedBytes,
    answer::{self, Answer},
    committed,
    error::{ApiError, Code},
    middleware::accepts_gzip,
    operation::Operations,
    request::{OrganizationKey, Public, Request},
    schema::ToSchema,
    state::Readiness,
};

/// The state of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// `ok`; from `/readyz` also `degraded`: the server works, but without some dispensable function.
    status: &'static str,
    /// The function that is missing, and the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

impl Status {
    const OK: Self = Self { status: "ok", detail: None };
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Operation", "");
    api.get("/healthz", "healthz", healthz).summary("Reports that the process runs.").returns::<Status>();
    api.get("/readyz", "readyz", readyz)
        .summary("Reports whether the server can do its work.")
        .returns::<Status>()
        .refuses([("503", "The server cannot do its work now")]);
    api.get("/metrics", "metrics", metrics)
        .summary("Returns the metrics in the format of Prometheus.")
        .content::<String>("200", "text/plain", "The metrics");
    api.get("/openapi.json", "description", description)
        .summary("Returns the OpenAPI document.")
        .content::<serde_json::Value>("200", "application/json", "The document");
}

async fn healthz(_: Request<Public>) -> HttpResponse {
    answer::record(StatusCode::OK, &Status::OK)
}

async fn readyz(request: Request<Public>) -> Answer {
    match request.services().health.ready().await {
        Ok(Readiness::Whole) => Ok(answer::record(StatusCode::OK, &Status::OK)),
        Ok(Readiness::Degraded(detail)) => {
            Ok(answer::record(StatusCode::OK, &Status { status: "degraded", detail: Some(detail) }))
        }
        Ok(Readiness::Draining) => Err(ApiError::new(Code::Unavailable, "the node is draining")),
        Err(reason) => Err(ApiError::new(Code::Unavailable, "the server is not ready").caused_by(reason)),
    }
}

async fn metrics(request: Request<OrganizationKey>) -> HttpResponse {
    let text = (request.services().metrics)();
    HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(text)
}

async fn description(request: Request<Public>) -> HttpResponse {
    let headers = request.headers();
    let document = if accepts_gzip(headers) { committed::packed_openapi() } else { committed::plain_openapi() };
    let mut response =
        if names_tag(headers, &document.etag) { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response
        .insert_header((header::ETAG, document.etag.as_str()))
        .insert_header((header::VARY, "Accept-Encoding"))
        .insert_header((header::CACHE_CONTROL, "no-cache"));
    if names_tag(headers, &document.etag) {
        return response.finish();
    }
    if document.is_packed {
        response.insert_header((header::CONTENT_ENCODING, "gzip"));
    }
    let mut response = response.content_type("application/json").body(document.bytes.clone());
    response.extensions_mut().insert(SharedBytes);
    response
}

/// Returns whether `If-None-Match` names this tag.
fn names_tag(headers: &HeaderMap, tag: &str) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .filter_map(|value: &HeaderValue| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|named| named.trim())
        .any(|named| named == "*" || named.strip_prefix("W/").unwrap_or(named) == tag)
}
