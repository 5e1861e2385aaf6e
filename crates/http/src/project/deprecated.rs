//! The removed operations GET and DELETE of `/projects/{id}`.

use actix_web::{
    HttpRequest,
    http::header::{HeaderName, HeaderValue, LINK},
};

use crate::{
    answer::Answer,
    error::{ApiError, Code},
    request::{AnyKey, Request},
};

const SUNSET: (HeaderName, HeaderValue) =
    (HeaderName::from_static("sunset"), HeaderValue::from_static("Tue, 24 Nov 2026 00:00:00 GMT"));
/// The time of the deprecation: 2025-11-24.
const DEPRECATION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("deprecation"), HeaderValue::from_static("@1763942400"));

pub(crate) async fn get_project_deprecated(request: HttpRequest, caller: Result<Request<AnyKey>, ApiError>) -> Answer {
    Err(removed("GET", &request, caller))
}

pub(crate) async fn delete_project_deprecated(
    request: HttpRequest,
    caller: Result<Request<AnyKey>, ApiError>,
) -> Answer {
    Err(removed("DELETE", &request, caller))
}

/// Returns `gone` for a valid key, and otherwise the refusal of the credential; both with the headers of a removed
/// operation.
fn removed(method: &str, request: &HttpRequest, caller: Result<Request<AnyKey>, ApiError>) -> ApiError {
    let message = format!("{method} /projects/{{id}} was removed on 2026-11-24; use {method} /org/projects/{{id}}");
    let response = caller.err().unwrap_or_else(|| ApiError::new(Code::Gone, message));
    // The id is not decoded, because it becomes part of a URL again.
    let id = request.uri().path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let successor = HeaderValue::from_str(&format!("</org/projects/{id}>; rel=\"successor-version\""));
    let link = successor.ok().map(|value| (LINK, value));
    let headers = [Some(DEPRECATION), Some(SUNSET), link].into_iter().flatten();
    headers.fold(response, |response, (name, value)| response.with_header(name, value))
}
