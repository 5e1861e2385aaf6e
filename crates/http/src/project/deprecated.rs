//! GET and DELETE of `/projects/{id}`, as long as they last.

use actix_web::{
    HttpRequest,
    http::header::{HeaderName, HeaderValue, LINK},
};
use time::{OffsetDateTime, macros::datetime};

use super::{handlers, record::ProjectBody};
use crate::{
    answer::Answer,
    caller::{Member, OrganizationWide},
    error::{ApiError, Code, ErrorBody},
};

/// From this moment on the routes are gone.
const SUNSET: OffsetDateTime = datetime!(2026-11-24 0:00 UTC);
const SUNSET_HEADER: (HeaderName, HeaderValue) =
    (HeaderName::from_static("sunset"), HeaderValue::from_static("Tue, 24 Nov 2026 00:00:00 GMT"));
/// Since 2025-11-24.
const DEPRECATION_HEADER: (HeaderName, HeaderValue) =
    (HeaderName::from_static("deprecation"), HeaderValue::from_static("@1763942400"));

/// One project. Use `GET /org/projects/{id}`.
#[utoipa::path(
    get, path = "/projects/{id}", tag = "Projects", params(("id" = String, Path)),
    responses(
        (status = 200, body = ProjectBody, headers(("Deprecation" = String), ("Sunset" = String), ("Link" = String))),
        (status = 403, description = "The key is of another project", body = ErrorBody),
        (status = 404, description = "There is no such project", body = ErrorBody),
        (status = 410, description = "From 2026-11-24T00:00:00Z on", body = ErrorBody),
    )
)]
#[deprecated]
pub(crate) async fn get_project_deprecated(request: HttpRequest, caller: Result<Member, ApiError>) -> Answer {
    let answer = match caller {
        Ok(caller) if caller.services().clock.now() >= SUNSET => Err(gone("GET")),
        Ok(caller) => handlers::get_project(caller).await,
        Err(refused) => Err(refused),
    };
    dated(&request, answer)
}

/// Deletes a project. Use `DELETE /org/projects/{id}`.
#[utoipa::path(
    delete, path = "/projects/{id}", tag = "Projects", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is gone",
         headers(("Deprecation" = String), ("Sunset" = String), ("Link" = String))),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such project", body = ErrorBody),
        (status = 409, description = "Something of it is active, or it is the default project", body = ErrorBody),
        (status = 410, description = "From 2026-11-24T00:00:00Z on", body = ErrorBody),
    )
)]
#[deprecated]
pub(crate) async fn delete_project_deprecated(request: HttpRequest, caller: Result<Member, ApiError>) -> Answer {
    let answer = match caller {
        Ok(caller) if caller.services().clock.now() >= SUNSET => Err(gone("DELETE")),
        Ok(caller) => match OrganizationWide::try_from(caller) {
            Ok(caller) => handlers::delete_project(caller).await,
            Err(refused) => Err(refused),
        },
        Err(refused) => Err(refused),
    };
    dated(&request, answer)
}

fn gone(method: &str) -> ApiError {
    let message = format!("{method} /projects/{{id}} was removed on 2026-11-24; use {method} /org/projects/{{id}}");
    ApiError::new(Code::Gone, message)
}

/// The answer, with what there is to know about its route.
fn dated(request: &HttpRequest, answer: Answer) -> Answer {
    // As it was called: what is encoded stays encoded.
    let id = request.uri().path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let successor = HeaderValue::from_str(&format!("</org/projects/{id}>; rel=\"successor-version\""));
    let link = successor.ok().map(|value| (LINK, value));
    let headers = [Some(DEPRECATION_HEADER), Some(SUNSET_HEADER), link].into_iter().flatten();
    match answer {
        Ok(mut response) => {
            headers.for_each(|(name, value)| drop(response.headers_mut().insert(name, value)));
            Ok(response)
        }
        Err(error) => Err(headers.fold(error, |error, (name, value)| error.with_header(name, value))),
    }
}
