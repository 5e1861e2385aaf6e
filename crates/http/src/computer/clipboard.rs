//! Write and read the clipboard.

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    caller::SessionAccess,
    error::ErrorBody,
};

/// Text for the clipboard.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct WriteClipboard {
    /// At most 1 MiB in UTF-8. Required.
    #[schema(required, nullable = false)]
    text: Option<String>,
}

/// Text of the clipboard.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Clipboard {
    /// Empty when the clipboard has no text.
    text: String,
}

/// Puts text on the clipboard of a session.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/clipboard/write", tag = "Computer", request_body = WriteClipboard,
    params(("id" = String, Path)),
    responses(
        (status = 204, description = "Written"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn write_clipboard(mut inside: SessionAccess) -> Answer {
    let WriteClipboard { text } = inside.json().await?;
    inside.services().computers.write_clipboard(&inside.session, text).await?;
    Ok(answer::nothing())
}

/// Reads the text on the clipboard of a session.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/clipboard/read", tag = "Computer",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = Clipboard),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = 413, description = "A page put more than 8 MiB there", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn read_clipboard(inside: SessionAccess) -> Answer {
    let text = inside.services().computers.read_clipboard(&inside.session).await?;
    Ok(HttpResponse::Ok().json(Clipboard { text }))
}
