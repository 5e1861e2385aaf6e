//! The description of the API, generated from the handlers.

use utoipa::{
    Modify, OpenApi,
    openapi::{
        self,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use crate::{computer, operational, pool, session};

#[derive(OpenApi)]
#[openapi(
    info(title = "Casement", description = "Cloud browsers on a host of your own.", license(name = "MIT OR Apache-2.0")),
    paths(
        session::create_browser,
        session::list_browsers,
        session::get_browser,
        session::update_browser,
        session::delete_browser,
        computer::capture_screenshot,
        pool::create_pool,
        pool::list_pools,
        pool::get_pool,
        pool::update_pool,
        pool::delete_pool,
        pool::acquire_browser,
        pool::flush_pool,
        pool::release_browser,
        operational::healthz,
        operational::readyz,
        operational::metrics,
        operational::description,
    ),
    security(("api_key" = [])),
    modifiers(&ApiKey),
)]
struct Document;

/// The credential of every operation that does not say otherwise.
struct ApiKey;

impl Modify for ApiKey {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let mut key = Http::new(HttpAuthScheme::Bearer);
        key.description = Some("An API key: `csk_…`".to_owned());
        document.components.get_or_insert_default().add_security_scheme("api_key", SecurityScheme::Http(key));
    }
}

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
