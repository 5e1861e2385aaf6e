//! The ignored fields of the request that made a session.

use actix_web::http::StatusCode;

use crate::{
    answer::{self, Answer},
    request::{ProjectKey, Request},
};

/// `GET /ui/api/browsers/{id_or_name}/ignored_fields`: returns the paths of the fields, as the header
/// `X-Casement-Ignored-Fields` named them.
pub(crate) async fn ignored_fields(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let fields = request.services().sessions.ignored_fields(request.scope(), &which).await?;
    Ok(answer::record(StatusCode::OK, &fields))
}
