//! The description of the API, generated from the handlers.

use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(info(title = "Casement", description = "Cloud browsers on a host of your own."))]
struct Document;

/// The OpenAPI document, as indented JSON that ends in a line break.
///
/// # Panics
/// Never: the document is made of strings.
#[must_use]
pub fn openapi() -> String {
    let mut text = Document::openapi().to_pretty_json().unwrap_or_else(|_| unreachable!("strings become JSON"));
    text.push('\n');
    text
}
