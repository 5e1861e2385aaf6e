//! The handlers that write and read the clipboard.

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};

use crate::{
    answer::{self, Answer},
    request::{ActiveSession, Request},
    schema::ToSchema,
};

/// Text for the clipboard.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct WriteClipboard {
    /// The text, at most 1 MiB in UTF-8. Required.
    #[schema(required, nullable = false)]
    text: Option<String>,
}

/// The text on the clipboard.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Clipboard {
    /// The text; empty if the clipboard has none.
    text: String,
}

pub(crate) async fn write_clipboard(mut request: Request<ActiveSession>) -> Answer {
    let WriteClipboard { text } = request.json().await?;
    request.services().computers.write_clipboard(request.session(), text).await?;
    Ok(answer::nothing())
}

pub(crate) async fn read_clipboard(request: Request<ActiveSession>) -> Answer {
    let text = request.services().computers.read_clipboard(request.session()).await?;
    Ok(HttpResponse::Ok().json(Clipboard { text }))
}
