//! GET and DELETE of `/projects/{id}`, which were removed.

use actix_web::{
    HttpRequest,
    http::header::{HeaderName, HeaderValue, LINK},
};

use crate::{
    answer::Answer,
    caller::Member,
    error::{ApiError, Code, ErrorBody},
};

const SUNSET: (HeaderName, HeaderValue) =
    (HeaderName::from_static("sunset"), HeaderValue::from_static("Tue, 24 Nov 2026 00:00:00 GMT"));
/// Since 2025-11-24.
const DEPRECATION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("deprecation"), HeaderValue::from_static("@1763942400"));

/// Removed on 2026-11-24. Use `GET /org/projects/{id}`.
#[utoipa::path(
    get, path = "/projects/{id}", tag = "Projects", params(("id" = String, Path)),
    responses(
        (status = 410, description = "The route was removed; `Link` names its successor", body = ErrorBody,
         headers(("Deprecation" = String), ("Sunset" = String), ("Link" = String))),
    )
)]
#[deprecated]
pub(crate) async fn get_project_deprecated(request: HttpRequest, caller: Result<Member, ApiError>) -> Answer {
    Err(removed("GET", &request, caller))
}

/// Removed on 2026-11-24. Use `DELETE /org/projects/{id}`.
#[utoipa::path(
    delete, path = "/projects/{id}", tag = "Projects", params(("id" = String, Path)),
    responses(
        (status = 410, description = "The route was removed; `Link` names its successor. Nothing is deleted", body = ErrorBody,
         headers(("Deprecation" = String), ("Sunset" = String), ("Link" = String))),
    )
)]
#[deprecated]
pub(crate) async fn delete_project_deprecated(request: HttpRequest, caller: Result<Member, ApiError>) -> Answer {
    Err(removed("DELETE", &request, caller))
}

/// The answer to whoever has a good key, whatever it asks for; with the headers, also to everybody else.
fn removed(method: &str, request: &HttpRequest, caller: Result<Member, ApiError>) -> ApiError {
    let message = format!("{method} /projects/{{id}} was removed on 2026-11-24; use {method} /org/projects/{{id}}");
    let answer = caller.err().unwrap_or_else(|| ApiError::new(Code::Gone, message));
    // As it was called: what is encoded stays encoded.
    let id = request.uri().path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let successor = HeaderValue::from_str(&format!("</org/projects/{id}>; rel=\"successor-version\""));
    let link = successor.ok().map(|value| (LINK, value));
    let headers = [Some(DEPRECATION), Some(SUNSET), link].into_iter().flatten();
    headers.fold(answer, |answer, (name, value)| answer.with_header(name, value))
}
